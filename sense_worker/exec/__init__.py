"""Execute: queued commands with a result (DESIGN §8)."""
