UPDATE calls SET delivered_at = :at WHERE operation = :seq AND delivered_at IS NULL
