-- What a proxy knows of the call that an operation was made of: what makes another call the same, and whether its
-- outcome has been delivered. Operations that no proxy made have no row here.

CREATE TABLE calls (
  operation    INTEGER PRIMARY KEY REFERENCES operations (seq) ON DELETE CASCADE,
  same         TEXT    NOT NULL CHECK (length(same) = 64),
  source       TEXT    CHECK (length(CAST(source AS BLOB)) BETWEEN 1 AND 1024),
  delivered_at INTEGER
) STRICT;

CREATE INDEX calls_undelivered ON calls (same) WHERE delivered_at IS NULL;
CREATE INDEX calls_by_source ON calls (source, same) WHERE source IS NOT NULL;
