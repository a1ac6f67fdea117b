SELECT tool, count(*) FILTER (WHERE state = 'committed'), count(*) FILTER (WHERE result IS NOT NULL),
       count(*) FILTER (WHERE state = 'voided'),
       coalesce(sum(octet_length(coalesce(intent, '')) + octet_length(coalesce(result, ''))), 0),
       min(committed_at), max(committed_at)
  FROM counterfoil_receipts
 GROUP BY tool
 ORDER BY tool
