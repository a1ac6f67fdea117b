-- By tool and age: receipts that still hold something ('+tool'), and bare facts and voids ('-tool'). Removal finds what
-- is overdue of either by one seek, however many there are. One expression, so that no look-up of a receipt, which
-- names the tool too, is ever planned by this index.
CREATE INDEX counterfoil_receipts_age ON counterfoil_receipts
  ((CASE WHEN result IS NULL AND intent IS NULL THEN '-' ELSE '+' END || tool), committed_at);

-- Histories that have ended: an epoch is here once recent operations of it were found to be missing.
CREATE TABLE counterfoil_epochs (
  epoch    text COLLATE "C" NOT NULL PRIMARY KEY CHECK (octet_length(epoch) BETWEEN 1 AND 64),
  ended_at timestamptz NOT NULL
);

-- How far time has come for removal, in microseconds since 1970; 0 before its first step. Whoever holds this row's
-- lock is the one server that removes.
INSERT INTO counterfoil_meta (name, value) VALUES ('removal', '0');
