INSERT INTO counterfoil_epochs (epoch, ended_at) VALUES ($1, statement_timestamp()) ON CONFLICT (epoch) DO NOTHING
