"""Bare Celery: a task that answers its argument, with a worker of the exec worker's shape."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

app = Celery("bare", broker=os.environ.get("BENCH_BROKER"), backend=os.environ.get("BENCH_BACKEND"))
app.conf.update(worker_hijack_root_logger=False, task_default_queue="bare", result_expires=3600)


@app.task(name="bare.nothing")
def nothing(args: dict[str, Any]) -> dict[str, Any]:
    """Answer the argument."""
    return args
