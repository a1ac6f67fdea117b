-- Automations of two teams. A row keeps its id for ever (AUTOINCREMENT), and its version can only rise.
CREATE TABLE automations (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  workspace_id     TEXT    NOT NULL,
  interval_minutes INTEGER NOT NULL CHECK (interval_minutes BETWEEN 5 AND 1440),
  version          INTEGER NOT NULL DEFAULT 1
) STRICT;

CREATE TRIGGER automations_version_rises BEFORE UPDATE ON automations
WHEN NEW.version <= OLD.version OR NEW.id <> OLD.id
BEGIN
  SELECT RAISE(ABORT, 'an automation keeps its id, and its version must rise');
END;

INSERT INTO automations (id, workspace_id, interval_minutes) VALUES
  (1,  'team-a', 15),
  (2,  'team-a', 15),
  (20, 'team-b', 15);
