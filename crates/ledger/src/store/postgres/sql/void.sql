INSERT INTO counterfoil_receipts (workspace, issuer, subject, tool, request_id, state, committed_at)
VALUES ($1, $2, $3, $4, $5, 'voided', statement_timestamp())
