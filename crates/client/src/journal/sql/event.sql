INSERT INTO events (operation, at, event, code) VALUES (:seq, :at, :event, :code)
