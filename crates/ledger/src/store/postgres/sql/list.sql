SELECT workspace, issuer, subject, tool, request_id, state, committed_at, revision, fingerprint, intent, result
  FROM counterfoil_receipts
 WHERE ($1::text IS NULL OR workspace = $1)
   AND ($2::text IS NULL OR subject = $2)
   AND ($3::text IS NULL OR tool = $3)
   AND ($4::text IS NULL OR state = $4)
   AND ($5::timestamptz IS NULL OR committed_at >= $5)
   AND ($6::timestamptz IS NULL OR committed_at < $6)
   AND ($7::text IS NULL OR starts_with(request_id, $7))
 ORDER BY committed_at DESC, workspace, issuer, subject, tool, request_id
 LIMIT $8 OFFSET $9
