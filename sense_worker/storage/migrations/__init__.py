"""Alembic's folder: `env.py`, and one file a step under `versions/`. Run by `sense_worker.storage.migrate`.

A new step is a new file `NNNN_what_it_does.py` with the next number, written by hand, and `HEAD` in `migrate`. A test
compares what the steps build with the metadata of the tables, on both databases.
"""
