-- By tool and age: first the receipts that still hold something (0), then the bare facts and voids (1). Removal finds
-- what is overdue in either part by one seek, however many there are.
CREATE INDEX counterfoil_receipts_age ON counterfoil_receipts
  (tool, (CASE WHEN result IS NULL AND intent IS NULL THEN 1 ELSE 0 END), committed_at);

-- Histories that have ended: an epoch is here once recent operations of it were found to be missing.
CREATE TABLE counterfoil_epochs (
  epoch    text COLLATE "C" NOT NULL PRIMARY KEY CHECK (octet_length(epoch) BETWEEN 1 AND 64),
  ended_at timestamptz NOT NULL
);

-- How far time has come for removal, in microseconds since 1970; 0 before its first step. Whoever holds this row's
-- lock is the one server that removes.
INSERT INTO counterfoil_meta (name, value) VALUES ('removal', '0');
