UPDATE counterfoil_receipts SET result = NULL, intent = NULL
 WHERE ctid = ANY (ARRAY(
   SELECT ctid FROM counterfoil_receipts
    WHERE subject = $1 AND ($2::text IS NULL OR workspace = $2) AND ($3::text IS NULL OR issuer = $3)
      AND (result IS NOT NULL OR intent IS NOT NULL)
    LIMIT $4
      FOR UPDATE SKIP LOCKED))
