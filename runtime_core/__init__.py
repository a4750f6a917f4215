"""HCP as a library: packs, identity, grants, the pipeline and the audit chain. No server, no database, no clock."""
