-- The operation that this call is another try of: one that a transport sends again, or one whose outcome nobody has
-- been told yet. What its owner has voided or given up is settled.
SELECT operations.seq
  FROM calls JOIN operations ON operations.seq = calls.operation
 WHERE calls.same = :same
   AND (calls.source = :source
        OR (calls.delivered_at IS NULL AND operations.state NOT IN ('voided', 'abandoned')))
 ORDER BY calls.source IS :source DESC, operations.seq DESC
 LIMIT 1
