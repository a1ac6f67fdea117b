-- What this database knows about itself: 'schema' (version of these tables) and 'epoch' (its unbroken history).
CREATE TABLE counterfoil_meta (
  name  text COLLATE "C" NOT NULL PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 64),
  value text COLLATE "C" NOT NULL CHECK (octet_length(value) BETWEEN 1 AND 64)
);

-- One row an operation: it committed, or it was voided and never will. The bounds are those of limits.rs.
-- Names compare byte for byte whatever the database's collation. Intent and result are text: jsonb would rewrite them.
-- The workspace comes first in the key, so that a database can be distributed by it.
CREATE TABLE counterfoil_receipts (
  workspace    text COLLATE "C" NOT NULL CHECK (octet_length(workspace) BETWEEN 1 AND 512),
  issuer       text COLLATE "C" NOT NULL CHECK (octet_length(issuer) BETWEEN 1 AND 512),
  subject      text COLLATE "C" NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 512),
  tool         text COLLATE "C" NOT NULL CHECK (octet_length(tool) BETWEEN 1 AND 64),
  request_id   text COLLATE "C" NOT NULL CHECK (octet_length(request_id) BETWEEN 1 AND 64),
  state        text COLLATE "C" NOT NULL CHECK (state IN ('committed', 'voided')),
  committed_at timestamptz NOT NULL
    CHECK (committed_at >= '0001-01-01 00:00:00+00' AND committed_at < '9999-01-01 00:00:00+00'),
  revision     text COLLATE "C" CHECK (octet_length(revision) BETWEEN 1 AND 32),
  fingerprint  bytea CHECK (octet_length(fingerprint) = 32),
  intent       text COLLATE "C" CHECK (octet_length(intent) <= 1048576),
  result       text COLLATE "C" CHECK (octet_length(result) <= 16777216),
  CONSTRAINT counterfoil_receipts_key PRIMARY KEY (workspace, issuer, subject, tool, request_id),
  CHECK ((state = 'committed') = (revision IS NOT NULL)),
  CHECK ((state = 'committed') = (fingerprint IS NOT NULL)),
  CHECK (state = 'committed' OR (intent IS NULL AND result IS NULL))
);

-- The same revision must mean the same schema. The contract names each top-level member, so that a change can be named.
CREATE TABLE counterfoil_contracts (
  tool     text COLLATE "C" NOT NULL CHECK (octet_length(tool) BETWEEN 1 AND 64),
  revision text COLLATE "C" NOT NULL CHECK (octet_length(revision) BETWEEN 1 AND 32),
  digest   bytea NOT NULL CHECK (octet_length(digest) = 32),
  contract text COLLATE "C" NOT NULL CHECK (octet_length(contract) <= 1048576),
  PRIMARY KEY (tool, revision)
);
