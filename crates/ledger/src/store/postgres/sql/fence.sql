-- Writes to the log and nothing else, so that COMMIT waits as it waits for any write: once it is answered, whatever
-- was visible before is as durable as this.
SELECT pg_logical_emit_message(true, 'counterfoil', 'fence') IS NOT NULL
