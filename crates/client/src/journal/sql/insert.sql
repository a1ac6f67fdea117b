INSERT INTO operations (id, server, caller, tool, arguments, sending, recorded_at, changed_at, state, open, tries)
VALUES (:id, :server, :caller, :tool, :arguments, :sending, :at, :at, 'ready', 0, 0)
