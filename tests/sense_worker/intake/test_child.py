"""The programs beside the pool: how one ends that cannot work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["sense_worker.intake.child", "sense_worker.schedule"])
@pytest.mark.parametrize(
    ("env", "why"),
    [({}, "secret.keys: the key file is missing"), ({"SENSE_INTAKE": "many"}, "SENSE_INTAKE")],
    ids=["no keys", "a setting"],
)
def test_a_child_that_cannot_work_says_so_in_one_line(tmp_path, module, env, why):
    """A key file that went away, or a setting, is told by its own words; the nursery starts the process again."""
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("SENSE_")}, **env}
    env |= {"HCP_HOME": str(tmp_path), "SENSE_REDIS_URL": "unix:///nowhere.sock"}

    code = f"from sense_worker.nursery import run; from {module} import main; run(main, 0, {os.getpid()})"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "process cannot work" in done.stderr
    assert why in done.stderr
