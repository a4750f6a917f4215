"""The shell and Node examples of docs/wire.md, run against a real server: what they write must verify."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime_core.event import parse_body
from runtime_core.signing import parse_signed_at, verify
from sense_worker.wire import check_entry, parse_entry

ROOT = Path(__file__).parents[2]
VECTORS: dict[str, Any] = json.loads((ROOT / "tests/vectors/wire.json").read_bytes())
KEY = "sense:acme:events"
DATA = '{"commit":"1f33bd0","author":"Zoë \\"Z\\" 🦉","shell":"$HOME `id` \'x\' %s","n":[1,2.5,null]}'
SUBJECT = 'größe "q" \\ $HOME'

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
shells = [shell for shell in ("sh", "bash", "busybox") if shutil.which(shell)]

STAND_IN = f"""#!{sys.executable}
# As much of redis-cli as publish.sh uses, where none is installed.
import os, sys
from runtime_core.redis_url import RedisUrl
from sense_worker.resp import Connection
words, options = sys.argv[1:], {{"-s": "", "-h": "", "-p": "0", "--user": ""}}
while words[0].startswith("-"):
    name = words.pop(0)
    options[name] = name in ("-x", "--tls") or words.pop(0)
if "-x" in options:
    words.append(sys.stdin.buffer.read())
where = options["-h"], int(options["-p"]), options["-s"], "--tls" in options
who = options["--user"], os.environ.get("REDISCLI_AUTH", ""), int(options["-n"])
try:
    (answer,) = Connection(RedisUrl("", *where, *who), 5.0).exchange([tuple(words)])
except Exception as error:
    sys.exit(str(error))
print(answer.decode() if isinstance(answer, bytes) else answer)
"""


@pytest.fixture
def redis_cli(tmp_path: Path) -> str:
    """The client program: the real one where it is installed, else a stand-in."""
    for name in ("redis-cli", "valkey-cli"):
        found = shutil.which(name)
        if found:
            return found
    stand_in = tmp_path / "redis-cli"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    return str(stand_in)


@pytest.fixture
def shell(redis_cli):
    def run(url: str, folder: Path, *words: str, shell: str = "sh") -> subprocess.CompletedProcess[str]:
        argv = [*([shell, "sh"] if shell == "busybox" else [shell]), str(ROOT / "examples/publish/publish.sh"), *words]
        return started(argv, url, folder, REDIS_CLI=redis_cli)

    return run


def node(url: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return started(["node", str(ROOT / "examples/publish/publish.mjs"), *words], url, folder)


def started(argv: list[str], url: str, folder: Path, **names: str) -> subprocess.CompletedProcess[str]:
    file = folder / "activation.json"
    who = {"tenant": "acme", "principal": "ana", "activation_id": "act_1", "pack_id": "git", "secret": "s3cret-of-ana"}
    file.write_text(json.dumps({"v": 1, **who, "redis_url": url}, indent=2))
    file.chmod(0o600)
    environment = {"PATH": os.environ["PATH"], "SENSE_ACTIVATION_FILE": str(file), "HOME": str(folder)}
    return subprocess.run(
        argv, env=environment | names, cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )


def the_entry(client: Any, stream_id: str) -> Any:
    ((found, fields),) = client.xrange(KEY)
    assert found.decode() == stream_id
    return parse_entry(fields)


def is_good(entry: Any) -> None:
    check_entry(entry)
    assert verify([b"s3cret-of-ana"], entry.c, entry.i, entry.t, entry.b, entry.s)
    assert parse_signed_at(entry.t) is not None


@needs_openssl
@pytest.mark.parametrize("name", shells)
def test_the_shell_example_writes_an_entry_that_verifies(redis_url, redis_server, tmp_path, shell, name):
    """publish.sh, under each shell that is there, writes one good entry, whatever characters data and subject hold."""
    done = shell(redis_url, tmp_path, "commit.created", DATA, SUBJECT, shell=name)
    assert (done.returncode, done.stderr) == (0, "")
    with redis_server.client() as client:
        entry = the_entry(client, done.stdout.strip())
    is_good(entry)
    event = parse_body(entry.b)
    assert (event.ref, event.data, event.subject) == ("commit.created", json.loads(DATA), SUBJECT)
    assert event.occurred_at


@needs_node
def test_the_node_example_writes_an_entry_that_verifies(redis_url, redis_server, tmp_path):
    """publish.mjs writes one good entry, with Node's own modules only."""
    done = node(redis_url, tmp_path, "commit.created", DATA, SUBJECT, "e-1")
    assert (done.returncode, done.stderr) == (0, "")
    with redis_server.client() as client:
        entry = the_entry(client, done.stdout.strip())
    is_good(entry)
    event = parse_body(entry.b)
    assert (event.ref, event.data, event.subject) == ("commit.created", json.loads(DATA), SUBJECT)
    assert (entry.message_id, bool(event.occurred_at)) == ("e-1", True)


@needs_openssl
@needs_node
def test_the_examples_take_an_account_of_xadd_and_xlen(redis_url, redis_server, tmp_path, shell):
    """Both announce under a server account that may say XADD and XLEN on the stream and nothing else."""
    url = f"unix://act_1:p-w@{redis_server.socket}"
    with redis_server.client() as client:
        acl = ("resetkeys", f"~{KEY}", "-@all", "+xadd", "+xlen")
        client.execute_command("ACL", "SETUSER", "act_1", "on", ">p-w", *acl)
        for run in (shell, node):
            done = run(url, tmp_path, "a", "{}")
            assert (done.returncode, done.stderr) == (0, "")
            assert "p-w" not in done.stdout
        assert client.xlen(KEY) == 2
        refused = [run(url.replace("p-w", "wrong"), tmp_path, "a", "{}") for run in (shell, node)]
        assert [(done.returncode, done.stdout) for done in refused] == [(1, "")] * 2
        assert ["WRONGPASS" in done.stderr for done in refused] == [True, True]
        client.execute_command("ACL", "DELUSER", "act_1")
        assert client.xlen(KEY) == 2


@needs_openssl
@needs_node
def test_the_examples_refuse_at_the_bound(redis_url, redis_server, tmp_path, shell):
    """At 100000 entries neither adds one."""
    with redis_server.client() as client:
        client.eval("for i = 1, 100000 do redis.call('XADD', KEYS[1], '*', 'x', '') end", 1, KEY)
        for run in (shell, node):
            done = run(redis_url, tmp_path, "a", "{}")
            assert (done.returncode, done.stdout) == (1, "")
            assert "at its bound" in done.stderr
        assert client.xlen(KEY) == 100_000


@needs_openssl
@needs_node
@pytest.mark.parametrize("words", [(), ("a",)])
def test_the_examples_say_how_they_are_used(tmp_path, shell, words):
    """Without arguments they name them and exit 1."""
    for run in (shell, node):
        done = run("redis://127.0.0.1:1", tmp_path, *words)
        assert (done.returncode, "usage: " in done.stderr) == (1, True)


@needs_openssl
@needs_node
def test_the_examples_fail_where_no_server_is(tmp_path, shell):
    """With no server at the address they say so and exit with a failure."""
    for run in (shell, node):
        done = run(f"unix://{tmp_path}/none", tmp_path, "a", "{}")
        assert done.returncode != 0
        assert done.stderr


@needs_openssl
@pytest.mark.parametrize("vector", VECTORS["signatures"], ids=lambda vector: vector["name"])
def test_openssl_makes_the_signature_of_each_vector(vector):
    """Openssl's own HMAC over the netstrings is the signature: the vectors are not only ours."""
    argv = ["openssl", "dgst", "-sha256", "-hmac", vector["secret"]]
    done = subprocess.run(argv, input=vector["signed"].encode(), capture_output=True, check=True)
    assert done.stdout.split()[-1].decode() == vector["s"]


@needs_node
@pytest.mark.parametrize("vector", VECTORS["signatures"], ids=lambda vector: vector["name"])
def test_node_makes_the_fields_of_each_vector(vector):
    """The entry of the Node example has the vector's signature."""
    activation = {"activation_id": vector["c"], "secret": vector["secret"]}
    arguments = ", ".join(json.dumps(part) for part in (activation, vector["i"], vector["t"], vector["b"]))
    module = json.dumps(str(ROOT / "examples/publish/publish.mjs"))
    script = f"import {{ entry }} from {module}; console.log(JSON.stringify(entry({arguments})))"
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, check=True)
    words = json.loads(done.stdout)
    assert dict(zip(words[::2], words[1::2], strict=True)) == {name: vector[name] for name in "citsb"} | {"v": "1"}
