-- What a later event does not say, it does not take away.
UPDATE operations
   SET state = :state, open = :open, tries = tries + :sent, changed_at = :at,
       code = coalesce(:code, code), answer = coalesce(:answer, answer),
       committed_at = coalesce(:committed_at, committed_at), epoch = coalesce(:epoch, epoch)
 WHERE seq = :seq
