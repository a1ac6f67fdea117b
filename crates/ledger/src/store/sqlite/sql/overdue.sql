SELECT count(*), min(committed_at)
  FROM counterfoil_receipts INDEXED BY counterfoil_receipts_age
 WHERE tool = ?1 AND CASE WHEN result IS NULL AND intent IS NULL THEN 1 ELSE 0 END = ?2 AND committed_at < ?3
