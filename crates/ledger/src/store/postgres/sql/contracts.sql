SELECT tool, revision, digest, contract FROM counterfoil_contracts ORDER BY tool, revision
