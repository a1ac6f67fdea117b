-- The journal: what a client intends, on disk before the first byte is sent. Times are microseconds since 1970, UTC.

CREATE TABLE operations (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT    NOT NULL CHECK (length(id) BETWEEN 1 AND 64 AND id NOT GLOB '*[^A-Za-z0-9_-]*'),
  server       TEXT    NOT NULL CHECK (length(server) BETWEEN 1 AND 2048),
  caller       TEXT    NOT NULL CHECK (length(caller) BETWEEN 1 AND 512),
  tool         TEXT    NOT NULL CHECK (length(tool) BETWEEN 1 AND 256),
  arguments    TEXT    NOT NULL CHECK (length(CAST(arguments AS BLOB)) BETWEEN 2 AND 1048576),
  sending      TEXT    NOT NULL CHECK (sending IN ('repeatable', 'at_most_once')),
  recorded_at  INTEGER NOT NULL,
  changed_at   INTEGER NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN
                 ('ready', 'sent', 'unknown', 'replied', 'committed', 'refused', 'voided', 'abandoned')),
  open         INTEGER NOT NULL CHECK (open >= 0 AND (state <> 'sent' OR open > 0)),
  tries        INTEGER NOT NULL CHECK (tries >= open),
  code         TEXT    CHECK (length(code) BETWEEN 1 AND 64),
  answer       TEXT    CHECK (length(CAST(answer AS BLOB)) <= 50331648),
  committed_at INTEGER,
  epoch        TEXT    CHECK (length(epoch) BETWEEN 1 AND 64),
  undone_in    TEXT    CHECK (length(undone_in) BETWEEN 1 AND 64),
  CHECK (state <> 'replied' OR answer IS NOT NULL)
) STRICT;

-- One operation an id; the server too keys its receipts by caller and tool.
CREATE UNIQUE INDEX operations_by_id ON operations (id, server, tool, caller);
CREATE INDEX operations_by_change ON operations (changed_at)
 WHERE state IN ('replied', 'committed', 'refused', 'voided', 'abandoned');
CREATE INDEX operations_by_server ON operations (server, caller, epoch);

CREATE TABLE events (
  seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  operation INTEGER NOT NULL REFERENCES operations (seq) ON DELETE CASCADE,
  at        INTEGER NOT NULL,
  event     TEXT    NOT NULL CHECK (event IN
              ('recorded', 'sent', 'replied', 'refused', 'unknown', 'voided', 'abandoned')),
  code      TEXT    CHECK (length(code) BETWEEN 1 AND 64)
) STRICT;

CREATE INDEX events_by_operation ON events (operation);
