-- The reference application's schema and its three rows.
CREATE TABLE automations (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  workspace_id     TEXT NOT NULL,
  interval_minutes INTEGER NOT NULL CHECK (interval_minutes BETWEEN 5 AND 1440),
  version          INTEGER NOT NULL
) STRICT;

INSERT INTO automations (id, workspace_id, interval_minutes, version)
VALUES (1, 'team-a', 15, 1), (2, 'team-a', 15, 1), (20, 'team-b', 15, 1);
