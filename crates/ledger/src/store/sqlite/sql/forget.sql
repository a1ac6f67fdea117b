UPDATE counterfoil_receipts SET result = NULL, intent = NULL
 WHERE (workspace, issuer, subject, tool, request_id) IN (
   SELECT workspace, issuer, subject, tool, request_id
     FROM counterfoil_receipts
    WHERE subject = ?1 AND (?2 IS NULL OR workspace = ?2) AND (?3 IS NULL OR issuer = ?3)
      AND (result IS NOT NULL OR intent IS NOT NULL)
    LIMIT ?4)
