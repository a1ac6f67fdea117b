-- Newest first. A filter that is null lets all pass.
SELECT seq, id, server, caller, tool, arguments, sending, recorded_at, changed_at, state, open, tries, code, answer,
       committed_at, epoch, undone_in
  FROM operations
 WHERE (:id IS NULL OR id = :id)
   AND (:server IS NULL OR server = :server)
   AND (:tool IS NULL OR tool = :tool)
   AND (NOT :open_only OR state IN ('ready', 'sent', 'unknown'))
   AND seq < :below
 ORDER BY seq DESC
 LIMIT :most
