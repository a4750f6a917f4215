"""What a tool says: bounded however much it is, and a result that every door takes (C29, §1.5.result)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_core import strict_json
from runtime_core.adapters.sandbox import Ceilings
from tests.runtime_core.adapters.wrapping import Wrapped, living, stdout

MIB = 1024 * 1024
ROOT = Path(__file__).parents[3]
MEASURE = """
import resource
from pathlib import Path
from runtime_core.adapters import sandbox
from tests.runtime_core.adapters.wrapping import Wrapped, off
if {limits}:
    sandbox.bubblewrap = off
world = Wrapped(Path({folder!r}), "C29-flood.sh")
world.run(["none"])  # everything is imported
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
answer = world.run([{kind!r}], timeout_s=60)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, answer.ok, answer.result, answer.error)
"""


@pytest.mark.case("C29")
@pytest.mark.parametrize("kind", ["out", "err", "both", "oneline"])
def test_endless_output_ends_the_tool_and_costs_no_memory(tmp_path: Path, rung: str, kind: str):
    """A flood on either output, both, or in one line is ended at the cap; the worker grows by a few caps at most."""
    text = MEASURE.format(limits=rung == "limits", folder=str(tmp_path), kind=kind)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, env=env, capture_output=True, check=True, timeout=100)
    grown, said = done.stdout.decode().split(" ", 1)
    assert said == f"False None output over {MIB} bytes\n"
    assert int(grown) * 1024 <= 4 * MIB
    assert living(str(tmp_path)) == []


@pytest.mark.case("C29")
@pytest.mark.parametrize("size", [0, 1, 65_536, 99_999, 100_000])
@pytest.mark.parametrize("where", ["stdout", "stderr"])
def test_output_up_to_the_limit_is_whole(tmp_path: Path, rung: str, size: int, where: str):
    """Every byte up to the limit arrives, on either output, and also where the tool fails."""
    world = Wrapped(tmp_path, f"import sys; sys.{where}.write('x' * {size}); sys.exit(3)")
    answer = world.run([], output_limit=100_000)
    assert (answer.error, answer.result[where]) == ("exited 3", "x" * size)
    over = world.run([], output_limit=max(size - 1, 1)) if size > 1 else None
    if over is not None:
        assert (over.ok, over.result, over.error) == (False, None, f"output over {size - 1} bytes")


@pytest.mark.case("C29")
def test_the_limit_counts_both_outputs_together(tmp_path: Path):
    """What stands on the two outputs counts together."""
    world = Wrapped(tmp_path, "import sys; sys.stdout.write('x' * 60); sys.stderr.write('y' * 60)")
    assert world.run([], output_limit=120).ok
    assert world.run([], output_limit=119).error == "output over 119 bytes"


@pytest.mark.case("C29")
@pytest.mark.spec("1.5.result")
@pytest.mark.parametrize("byte", [0, 1, 10, 0x1B, 0x22, 0x5C, 0x80, 0xFF])
def test_a_result_is_valid_json_of_bounded_size(tmp_path: Path, byte: int):
    """Whatever bytes a tool prints, the result passes the strict door and takes twice the limit at most, or is over."""
    limit = 30_000
    world = Wrapped(tmp_path, f"import sys; sys.stdout.buffer.write(bytes([{byte}]) * {limit})")
    answer = world.run([], output_limit=limit)
    text = json.dumps(answer.plain(), ensure_ascii=False).encode()
    assert len(text) <= 2 * limit + 200
    strict_json.parse_object(text, limit=MIB, what="result")
    assert answer.ok == (byte in {10, 0x22, 0x5C}), answer.error
    assert answer.ok or answer.error == f"output over {limit} bytes"


def test_output_that_ends_in_the_middle_of_a_character(tmp_path: Path):
    """Half a character, bytes that are none and NUL are U+FFFD; what is around them stays."""
    raw = "aé€".encode()[:-1] + b"\xff\xed\xa0\x80\0z" + "€".encode()[:2]
    world = Wrapped(tmp_path, f"import sys; sys.stdout.buffer.write({raw!r})")
    text = stdout(world.run([]))
    assert text == "aé" + "\ufffd" * 6 + "z\ufffd"
    assert len(raw.decode("utf-8", "replace").replace("\0", "\ufffd")) == len(text)


@pytest.mark.parametrize("secret", ["canary-minted", "geheim-ü", "abcd", 'a"b\\c', "line\nbreak"])
def test_a_secret_that_a_tool_prints_is_masked(tmp_path: Path, secret: str):
    """Material that the tool got and prints is masked on both outputs, wherever it stands in them."""
    program = "import os, sys\nfor out in (sys.stdout, sys.stderr): out.write('<' + os.environ['T'] * 2 + '>')"
    world = Wrapped(tmp_path, program)
    world.hub.fields = {"secret": secret}
    answer = world.run([], binding={"mode": "user", "hub": "keyring", "env": {"T": "secret"}}, env=["LANG"])
    assert answer.result == {"stdout": "<******>", "stderr": "<******>"}


CONNECT = {"binding": {"mode": "user", "hub": "keyring"}, "verb": {"connect": True}}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"identity": "ana@x", "secret": "canary"}', None),
        ('{"identity": "ana@x", "secret": "canary", "secret": "b"}', "the connect command answered no JSON"),
        ("canary", "the connect command answered no JSON"),
        ('{"identity": "ana@x"}', "the connect command answered no identity and secret"),
        ('["canary"]', "the connect command answered no identity and secret"),
    ],
)
def test_what_a_connect_command_prints_is_in_no_result(tmp_path: Path, text: str, error: str | None):
    """The answer of a connect command goes to the hub; neither it nor a failure's output is in result or audit."""
    world = Wrapped(tmp_path, f"import sys; print('canary', file=sys.stderr); print({text!r})")
    answer = world.run([], **CONNECT)
    assert answer.error == error
    assert answer.result == ({"identity": "ana@x"} if error is None else None)
    assert world.hub.kept == ([("ana@x", {"secret": "canary"})] if error is None else [])
    failed = Wrapped(tmp_path, f"import sys; print({text!r}); print('canary', file=sys.stderr); sys.exit(2)")
    refused = failed.run([], **CONNECT)
    assert (refused.result, refused.error, failed.hub.kept) == (None, "exited 2", [])
    assert "canary" not in str(answer) + str(refused) + str(world.audit.records) + str(failed.audit.records)


@pytest.mark.parametrize(
    ("ceilings", "program"),
    [
        (Ceilings(memory_bytes=64 * MIB), "x = b'x' * (200 << 20)"),
        (Ceilings(file_bytes=1_000), "with open('big', 'wb') as big: big.write(b'x' * 5_000)"),
        (Ceilings(open_files=20), "held = [open('/dev/null') for _ in range(30)]"),
    ],
)
def test_a_tool_over_a_ceiling_fails_alone(tmp_path: Path, rung: str, ceilings: Ceilings, program: str):
    """Memory, the size of a file and open files end at the ceiling; the same tool runs beneath it."""
    assert Wrapped(tmp_path, program).run([]).ok
    answer = Wrapped(tmp_path, program, ceilings=ceilings).run([])
    assert not answer.ok
    assert answer.error.startswith("exited ")


@pytest.mark.parametrize(
    ("tool", "argv", "said"),
    [
        ("/usr/bin/git", ["--version"], "git version"),
        ("/usr/bin/node", ["-e", "fetch('http://127.0.0.1:1').catch(e => console.log(e.message))"], "fetch failed"),
        (sys.executable, ["-c", "import threading; print(threading.active_count())"], "1"),
    ],
)
def test_tools_of_the_day_run_within_the_ceilings(tmp_path: Path, rung: str, tool: str, argv: list[str], said: str):
    """git, Python and node, which reserves far more memory than it uses, run within the ceilings as they stand."""
    if not Path(tool).exists():
        pytest.skip(f"no {tool}")
    assert stdout(Wrapped(tmp_path, tool=tool).run(argv)).startswith(said)


def test_no_limit_of_the_worker_is_raised(tmp_path: Path, rung: str):
    """A worker that is itself under a lower limit gives its tools no more than it has."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    program = "from resource import *; print(getrlimit(RLIMIT_CORE)[1], getrlimit(RLIMIT_CPU)[1])"
    core, cpu = stdout(Wrapped(tmp_path, program).run([], timeout_s=10)).split()
    assert int(core) == 0
    assert hard == resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert int(cpu) == 12 * (os.cpu_count() or 1)
