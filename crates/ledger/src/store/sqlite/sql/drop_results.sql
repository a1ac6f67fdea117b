UPDATE counterfoil_receipts SET result = NULL, intent = NULL
 WHERE (workspace, issuer, subject, tool, request_id) IN (
   SELECT workspace, issuer, subject, tool, request_id
     FROM counterfoil_receipts INDEXED BY counterfoil_receipts_age
    WHERE CASE WHEN result IS NULL AND intent IS NULL THEN '-' ELSE '+' END || tool = ?1 AND committed_at < ?2
    ORDER BY committed_at LIMIT ?3)
