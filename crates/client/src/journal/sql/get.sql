SELECT seq, id, server, caller, tool, arguments, sending, recorded_at, changed_at, state, open, tries, code, answer,
       committed_at, epoch, undone_in
  FROM operations
 WHERE seq = :seq
