-- What this database knows about itself: 'schema' (version of these tables) and 'epoch' (its unbroken history).
CREATE TABLE counterfoil_meta (
  name  text COLLATE "C" NOT NULL PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 64),
  value text COLLATE "C" NOT NULL CHECK (octet_length(value) BETWEEN 1 AND 64)
);

-- The bounds are those of limits.rs, each a CHECK of a domain: a CHECK of the table is read anew by every statement, and
-- a dozen of them cost as much as the row. Names compare byte for byte whatever the database's collation.
CREATE DOMAIN counterfoil_name AS text COLLATE "C"
  CONSTRAINT counterfoil_name_length CHECK (octet_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN counterfoil_word AS text COLLATE "C"
  CONSTRAINT counterfoil_word_length CHECK (octet_length(VALUE) BETWEEN 1 AND 64);
CREATE DOMAIN counterfoil_revision AS text COLLATE "C"
  CONSTRAINT counterfoil_revision_length CHECK (octet_length(VALUE) BETWEEN 1 AND 32);
CREATE DOMAIN counterfoil_state AS text COLLATE "C"
  CONSTRAINT counterfoil_state_known CHECK (VALUE IN ('committed', 'voided'));
CREATE DOMAIN counterfoil_instant AS timestamptz
  CONSTRAINT counterfoil_instant_range
  CHECK (VALUE >= '0001-01-01 00:00:00+00' AND VALUE < '9999-01-01 00:00:00+00');
CREATE DOMAIN counterfoil_fingerprint AS bytea
  CONSTRAINT counterfoil_fingerprint_length CHECK (octet_length(VALUE) = 32);
CREATE DOMAIN counterfoil_intent AS text COLLATE "C"
  CONSTRAINT counterfoil_intent_length CHECK (octet_length(VALUE) <= 1048576);
CREATE DOMAIN counterfoil_result AS text COLLATE "C"
  CONSTRAINT counterfoil_result_length CHECK (octet_length(VALUE) <= 16777216);

-- One row an operation: it committed, or it was voided and never will. Intent and result are text: jsonb would rewrite
-- them. The workspace comes first in the key, so that a database can be distributed by it.
CREATE TABLE counterfoil_receipts (
  workspace    counterfoil_name NOT NULL,
  issuer       counterfoil_name NOT NULL,
  subject      counterfoil_name NOT NULL,
  tool         counterfoil_word NOT NULL,
  request_id   counterfoil_word NOT NULL,
  state        counterfoil_state NOT NULL,
  committed_at counterfoil_instant NOT NULL,
  revision     counterfoil_revision,
  fingerprint  counterfoil_fingerprint,
  intent       counterfoil_intent,
  result       counterfoil_result,
  CONSTRAINT counterfoil_receipts_key PRIMARY KEY (workspace, issuer, subject, tool, request_id),
  CONSTRAINT counterfoil_receipts_whole CHECK (CASE state
    WHEN 'committed' THEN revision IS NOT NULL AND fingerprint IS NOT NULL
    ELSE revision IS NULL AND fingerprint IS NULL AND intent IS NULL AND result IS NULL END)
);

-- The same revision must mean the same schema. The contract names each top-level member, so that a change can be named.
CREATE TABLE counterfoil_contracts (
  tool     text COLLATE "C" NOT NULL CHECK (octet_length(tool) BETWEEN 1 AND 64),
  revision text COLLATE "C" NOT NULL CHECK (octet_length(revision) BETWEEN 1 AND 32),
  digest   bytea NOT NULL CHECK (octet_length(digest) = 32),
  contract text COLLATE "C" NOT NULL CHECK (octet_length(contract) <= 1048576),
  PRIMARY KEY (tool, revision)
);
