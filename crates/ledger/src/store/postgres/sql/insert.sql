-- A plain INSERT: a rival's receipt is an error, which undoes the write beside it. In another transaction than the
-- one that was looked in ($10 is when that one began) there is no instant to record, and NOT NULL refuses the row.
INSERT INTO counterfoil_receipts
  (workspace, issuer, subject, tool, request_id, state, committed_at, revision, fingerprint, intent, result)
VALUES ($1, $2, $3, $4, $5, 'committed',
        CASE WHEN transaction_timestamp() = $10 THEN statement_timestamp() END, $6, $7, $8, $9)
RETURNING committed_at
