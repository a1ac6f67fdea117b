SELECT transaction_timestamp(), statement_timestamp(),
       receipt.state, receipt.revision, receipt.fingerprint, receipt.committed_at, receipt.result
  FROM (SELECT 1) AS one
  LEFT JOIN counterfoil_receipts AS receipt
    ON receipt.workspace = $1 AND receipt.issuer = $2 AND receipt.subject = $3
   AND receipt.tool = $4 AND receipt.request_id = $5
