DECLARE counterfoil_walk NO SCROLL CURSOR FOR
SELECT workspace, issuer, subject, tool, request_id, state, committed_at, revision, fingerprint, intent, result
  FROM counterfoil_receipts
 ORDER BY workspace, issuer, subject, tool, request_id
