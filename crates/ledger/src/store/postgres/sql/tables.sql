SELECT to_regclass('counterfoil_meta') IS NOT NULL,
       to_regclass('counterfoil_receipts') IS NOT NULL AND to_regclass('counterfoil_contracts') IS NOT NULL,
       current_setting('server_encoding'), pg_is_in_recovery(), current_setting('server_version_num')::int
