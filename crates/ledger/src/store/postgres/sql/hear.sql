-- What a witness asks: the epoch that holds, whether the history it knows has ended, whether its receipt is there.
SELECT (SELECT value FROM counterfoil_meta WHERE name = 'epoch'),
       EXISTS (SELECT 1 FROM counterfoil_epochs WHERE epoch = $6),
       EXISTS (SELECT 1 FROM counterfoil_receipts
                WHERE workspace = $1 AND issuer = $2 AND subject = $3 AND tool = $4 AND request_id = $5),
       statement_timestamp()
