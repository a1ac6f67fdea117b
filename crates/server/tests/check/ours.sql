CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT, version INTEGER);
CREATE TABLE counterfoil_receipts (workspace_id TEXT, result TEXT);
CREATE VIEW seen AS SELECT workspace_id, result FROM counterfoil_receipts;
CREATE TABLE cleaned (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT);
CREATE TRIGGER cleaning AFTER INSERT ON cleaned BEGIN DELETE FROM counterfoil_receipts; END;
CREATE VIEW shelf AS SELECT id, workspace_id FROM cleaned;
CREATE TRIGGER shelving INSTEAD OF INSERT ON shelf BEGIN
  INSERT INTO counterfoil_receipts VALUES (NEW.workspace_id, '');
END;
CREATE VIEW schema_of AS SELECT name FROM sqlite_schema;
