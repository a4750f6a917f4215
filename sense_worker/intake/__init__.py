"""Intake: stream entries become events and deliveries of the ledger, in one transaction a batch (DESIGN §6.1-3)."""
