-- Not to_regclass: after a wait for an advisory lock it still answers from the session's cache.
SELECT count(*) FILTER (WHERE relname = 'counterfoil_meta') = 1,
       count(*) FILTER (WHERE relname <> 'counterfoil_meta') = 2,
       current_setting('server_encoding'), pg_is_in_recovery(), current_setting('server_version_num')::int
  FROM pg_class
 WHERE relname IN ('counterfoil_meta', 'counterfoil_receipts', 'counterfoil_contracts') AND pg_table_is_visible(oid)
