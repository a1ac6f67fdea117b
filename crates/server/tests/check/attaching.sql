CREATE TABLE notes (id);
ATTACH 'stolen.db' AS stolen;
CREATE TABLE stolen.notes (id);
