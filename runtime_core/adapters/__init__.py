"""How commands reach the world: wrap, composite, openapi (§1.5.adapters, DESIGN §5)."""
