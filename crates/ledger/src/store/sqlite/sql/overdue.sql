SELECT count(*), min(committed_at)
  FROM counterfoil_receipts INDEXED BY counterfoil_receipts_age
 WHERE CASE WHEN result IS NULL AND intent IS NULL THEN '-' ELSE '+' END || tool = ?1 AND committed_at < ?2
