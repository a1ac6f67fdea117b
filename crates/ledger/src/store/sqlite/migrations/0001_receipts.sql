-- What this database knows about itself: 'schema' (version of these tables), 'epoch' (its unbroken history) and
-- 'fence' (rewritten after a commit in doubt).
CREATE TABLE counterfoil_meta (
  name  TEXT NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 64),
  value TEXT NOT NULL CHECK (length(value) BETWEEN 1 AND 64)
) STRICT, WITHOUT ROWID;

-- One row an operation: it committed, or it was voided and never will. The bounds are those of limits.rs.
CREATE TABLE counterfoil_receipts (
  workspace    TEXT NOT NULL CHECK (length(CAST(workspace AS BLOB)) BETWEEN 1 AND 512),
  issuer       TEXT NOT NULL CHECK (length(CAST(issuer AS BLOB)) BETWEEN 1 AND 512),
  subject      TEXT NOT NULL CHECK (length(CAST(subject AS BLOB)) BETWEEN 1 AND 512),
  tool         TEXT NOT NULL CHECK (length(tool) BETWEEN 1 AND 64),
  request_id   TEXT NOT NULL CHECK (length(request_id) BETWEEN 1 AND 64),
  state        TEXT NOT NULL CHECK (state IN ('committed', 'voided')),
  committed_at INTEGER NOT NULL,
  revision     TEXT CHECK (length(revision) BETWEEN 1 AND 32),
  fingerprint  BLOB CHECK (length(fingerprint) = 32),
  intent       TEXT CHECK (length(CAST(intent AS BLOB)) <= 1048576),
  result       TEXT CHECK (length(CAST(result AS BLOB)) <= 16777216),
  PRIMARY KEY (workspace, issuer, subject, tool, request_id),
  CHECK ((state = 'committed') = (revision IS NOT NULL)),
  CHECK ((state = 'committed') = (fingerprint IS NOT NULL)),
  CHECK (state = 'committed' OR (intent IS NULL AND result IS NULL))
) STRICT, WITHOUT ROWID;

-- The same revision must mean the same schema. The contract names each top-level member, so that a change can be named.
CREATE TABLE counterfoil_contracts (
  tool     TEXT NOT NULL CHECK (length(tool) BETWEEN 1 AND 64),
  revision TEXT NOT NULL CHECK (length(revision) BETWEEN 1 AND 32),
  digest   BLOB NOT NULL CHECK (length(digest) = 32),
  contract TEXT NOT NULL CHECK (length(contract) <= 1048576),
  PRIMARY KEY (tool, revision)
) STRICT, WITHOUT ROWID;
