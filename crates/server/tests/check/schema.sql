-- Notes whose ids and versions never come back, and what else the cases need.
CREATE TABLE notes (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  workspace_id TEXT    NOT NULL,
  author       TEXT    NOT NULL,
  title        TEXT    NOT NULL,
  body         TEXT,
  version      INTEGER NOT NULL DEFAULT 1,
  UNIQUE (workspace_id, title)
) STRICT;
CREATE TRIGGER notes_version_rises BEFORE UPDATE ON Notes WHEN NEW."version" <= OLD.[version]
BEGIN SELECT RAISE(ABORT, 'version must rise'); END;

CREATE TABLE members (workspace_id TEXT, user_id TEXT, issuer TEXT, PRIMARY KEY (workspace_id, user_id)) WITHOUT ROWID;
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT, note_id INTEGER, what TEXT, at TEXT);

-- A virtual table, and a view that is written through.
CREATE VIRTUAL TABLE pages USING fts5 (workspace_id, body);
CREATE VIEW cards AS SELECT id, workspace_id, title AS front, version AS edition FROM notes;
CREATE TRIGGER cards_change INSTEAD OF UPDATE ON cards BEGIN
  UPDATE notes SET title = NEW.front, version = NEW.edition WHERE id = OLD.id;
END;

-- An application's own trigger may ask for the row that it has just inserted.
CREATE TRIGGER notes_logged AFTER INSERT ON notes BEGIN
  INSERT INTO events (workspace_id, what) VALUES (NEW.workspace_id, 'new');
  UPDATE events SET note_id = NEW.id WHERE id = last_insert_rowid();
END;
