-- Any number will do that no application uses: "counterf" in ASCII. Held to the end of the migration's own
-- transaction, and nowhere on the path of a call.
SELECT pg_advisory_xact_lock(7165074649429406310)
