INSERT INTO counterfoil_receipts
  (workspace, issuer, subject, tool, request_id, state, committed_at, revision, fingerprint, intent, result)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (workspace, issuer, subject, tool, request_id) DO NOTHING
