"""Scenario files: a policy with its people and its cases, run through the real pipeline in memory (DESIGN §10)."""
