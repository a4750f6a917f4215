"""The first steps of the README, typed as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.test_up import Up, assert_is_alone_and_ends_in_order

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on PATH"),
    pytest.mark.skipif(sys.platform != "linux", reason="what is left of a killed process is read from /proc"),
    pytest.mark.timeout(400),
]


def steps():
    """The lines of the block of the second terminal."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    return next(block for block in blocks if "git init ../hello" in block).splitlines()


NAMES = {"FILE": r"/\S+/activations/act_\w+\.json", "EVENT_ID": r"\b[0-9a-f]{32}\b"}
"""What a line of the block stands for: the last such text that a line before printed."""


@pytest.fixture
def up(tmp_path):
    """Everything running on a new home, as in the first terminal."""
    up = Up(tmp_path / "home")
    up.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{up.env['PATH']}"
    for name in ("AUTHOR", "COMMITTER"):
        up.env |= {f"GIT_{name}_NAME": "Ana", f"GIT_{name}_EMAIL": "ana@example.com"}
    yield up.ready()
    up.close()


def test_the_first_steps_of_the_readme_lead_to_an_explained_delivery(up, tmp_path):
    """Each line ends well, one of them explains a commit that was delivered, and what ran ends with nothing left."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "examples").symlink_to(ROOT / "examples")
    found = dict.fromkeys(NAMES, "")
    said = ""
    for step in steps():
        line = step.partition("  #")[0]
        for name, text in found.items():
            line = re.sub(rf"\b{name}\b", text, line)
        done = subprocess.run(["sh", "-c", line], cwd=checkout, env=up.env, capture_output=True, text=True, check=False)
        assert (line, done.returncode, done.stderr) == (line, 0, done.stderr)
        said += done.stdout
        found |= {name: match[0] for name, pattern in NAMES.items() if (match := re.search(pattern, done.stdout))}

    assert "operator -> inbox: delivered" in said.splitlines()
    assert_is_alone_and_ends_in_order(up)
