-- Every tool that has receipts, once for each part of the index: one seek a row.
WITH RECURSIVE parts (part) AS (
  SELECT (SELECT CASE WHEN result IS NULL AND intent IS NULL THEN '-' ELSE '+' END || tool AS part FROM counterfoil_receipts ORDER BY 1 LIMIT 1)
  UNION ALL
  SELECT (SELECT CASE WHEN result IS NULL AND intent IS NULL THEN '-' ELSE '+' END || tool FROM counterfoil_receipts
           WHERE CASE WHEN result IS NULL AND intent IS NULL THEN '-' ELSE '+' END || tool > parts.part ORDER BY 1 LIMIT 1)
    FROM parts WHERE parts.part IS NOT NULL
)
SELECT part FROM parts WHERE part IS NOT NULL
