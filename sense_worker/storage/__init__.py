"""The ledger's database: tables, migrations, authority rows and the ledger itself (DESIGN §9)."""
