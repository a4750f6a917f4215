"""No process that a test starts connects off this machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.guard.sitecustomize import NOTES, leaves

CONNECT = """
import socket, sys
with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as one:
    one.settimeout(0.2)
    try:
        one.connect((sys.argv[1], int(sys.argv[2])))
    except ConnectionRefusedError as error:
        print(error)
"""


@pytest.mark.parametrize("host", ["192.0.2.1", "10.0.0.1", "169.254.169.254", "2001:db8::1"])
def test_a_child_that_would_leave_is_refused_before_it_connects_and_written_down(tmp_path, host):
    """The refusal is the child's own, and the session learns of it by the file."""
    notes = tmp_path / "notes"
    env = {**os.environ, NOTES: str(notes)}

    done = subprocess.run(
        [sys.executable, "-c", CONNECT, host, "80"], env=env, capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.startswith("a test would leave this machine")
    assert host in notes.read_text()


def test_loopback_and_paths_do_not_leave():
    """All of 127.0.0.0/8 and ::1, also as IPv6 carries it; a name counts as leaving, whatever it leads to."""
    stay = [
        ("127.0.0.1", 1),
        ("127.9.9.9", 1),
        ("::1", 1, 0, 0),
        ("::ffff:127.0.0.1", 1),
        ("localhost", 1),
        "/a/path",
    ]
    leave = [("0.0.0.0", 1), ("::", 1, 0, 0), ("::ffff:10.0.0.1", 1), ("localhost.example", 1), ("1.1.1.1", 53)]

    assert [leaves(one) for one in (*stay, *leave)] == [False] * len(stay) + [True] * len(leave)


def test_a_child_finds_no_name_elsewhere(tmp_path):
    """Looking up a name asks another machine: it is refused too."""
    env = {**os.environ, NOTES: str(tmp_path / "notes")}
    code = (
        "import socket\nassert socket.getaddrinfo('192.0.2.1', 80)\n"
        "try: socket.getaddrinfo('example.test', 80)\nexcept ConnectionRefusedError as e: print(e)"
    )

    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=30)

    assert "example.test" in done.stdout
    assert "192.0.2.1" not in (tmp_path / "notes").read_text()
    assert "example.test" in (tmp_path / "notes").read_text()
