-- Every tool that has receipts: one seek a tool.
WITH RECURSIVE tools (tool) AS (
  SELECT min(tool) FROM counterfoil_receipts
  UNION ALL
  SELECT (SELECT min(tool) FROM counterfoil_receipts WHERE tool > tools.tool) FROM tools WHERE tools.tool IS NOT NULL
)
SELECT tool FROM tools WHERE tool IS NOT NULL
