DELETE FROM operations
 WHERE seq IN (SELECT seq FROM operations
                WHERE state IN ('replied', 'committed', 'refused', 'voided', 'abandoned') AND changed_at < :before
                ORDER BY changed_at LIMIT :most)
