SELECT workspace, issuer, subject, tool, request_id, state, committed_at, revision, fingerprint, intent, result
  FROM counterfoil_receipts
 WHERE workspace = $1 AND issuer = $2 AND subject = $3 AND tool = $4 AND request_id = $5
