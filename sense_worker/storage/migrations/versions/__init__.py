"""The steps of the schema, numbered without a gap."""
