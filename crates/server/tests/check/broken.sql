CREATE TABLE notes (id);

CRATE TABLE members (id);
