SELECT state, revision, fingerprint, committed_at, result
  FROM counterfoil_receipts
 WHERE workspace = ?1 AND issuer = ?2 AND subject = ?3 AND tool = ?4 AND request_id = ?5
