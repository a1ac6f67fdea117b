-- One server removes at a time: whoever gets this row's lock. Nobody waits for it.
SELECT value, statement_timestamp() FROM counterfoil_meta WHERE name = 'removal' FOR UPDATE SKIP LOCKED
