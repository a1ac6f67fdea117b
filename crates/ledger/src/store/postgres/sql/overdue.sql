SELECT count(*), min(committed_at) FROM counterfoil_receipts
 WHERE CASE WHEN result IS NULL AND intent IS NULL THEN '-' ELSE '+' END || tool = $1 AND committed_at < $2
