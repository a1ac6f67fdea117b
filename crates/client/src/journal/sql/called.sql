INSERT INTO calls (operation, same, source) VALUES (:seq, :same, :source)
