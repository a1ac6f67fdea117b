UPDATE counterfoil_receipts SET result = NULL, intent = NULL
 WHERE ctid = ANY (ARRAY(
   SELECT ctid FROM counterfoil_receipts
    WHERE CASE WHEN result IS NULL AND intent IS NULL THEN '-' ELSE '+' END || tool = $1 AND committed_at < $2
    ORDER BY committed_at LIMIT $3
      FOR UPDATE SKIP LOCKED))
