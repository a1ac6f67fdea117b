SELECT max(value) FILTER (WHERE name = 'schema'), max(value) FILTER (WHERE name = 'epoch') FROM counterfoil_meta
