SELECT workspace, issuer, subject, tool, request_id, state, committed_at, revision, fingerprint, intent, result
  FROM counterfoil_receipts
 WHERE (?1 IS NULL OR workspace = ?1)
   AND (?2 IS NULL OR subject = ?2)
   AND (?3 IS NULL OR tool = ?3)
   AND (?4 IS NULL OR state = ?4)
   AND (?5 IS NULL OR committed_at >= ?5)
   AND (?6 IS NULL OR committed_at < ?6)
   AND (?7 IS NULL OR substr(request_id, 1, length(?7)) = ?7)
 ORDER BY committed_at DESC, workspace, issuer, subject, tool, request_id
 LIMIT ?8 OFFSET ?9
