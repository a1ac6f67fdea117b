SELECT contract FROM counterfoil_contracts WHERE tool = $1 AND revision = $2
