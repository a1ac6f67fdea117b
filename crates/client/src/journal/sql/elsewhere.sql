-- Operations whose reply belongs to another history of the same server than the one it lives in now.
SELECT seq, id, server, caller, tool, arguments, sending, recorded_at, changed_at, state, open, tries, code, answer,
       committed_at, epoch, undone_in
  FROM operations
 WHERE server = :server AND caller = :caller AND epoch IS NOT NULL AND epoch <> :epoch
   AND state IN ('replied', 'committed') AND undone_in IS NULL AND sending = 'repeatable' AND seq < :below
 ORDER BY seq DESC
 LIMIT :most
