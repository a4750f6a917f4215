"""The background runtime for HCP packs: publisher, intake, ledger, drain, operator and command line."""
