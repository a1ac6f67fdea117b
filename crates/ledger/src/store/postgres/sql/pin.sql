-- Of two servers that are the first at once, one writes; both then read what it wrote.
INSERT INTO counterfoil_contracts (tool, revision, digest, contract) VALUES ($1, $2, $3, $4)
ON CONFLICT (tool, revision) DO NOTHING
