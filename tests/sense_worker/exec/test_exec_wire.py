"""The sealed wire of Execute: the vectors of docs/wire.md, and that nothing of a message can be moved or changed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sense_worker.exec.request import CancelRequest, ExecRequest, parse_request
from sense_worker.exec.wire import Place, build_request, open_reply, open_request, seal_reply, verify_request

ROOT = Path(__file__).parents[3]
VECTORS: list[dict[str, Any]] = json.loads((ROOT / "tests/vectors/exec.json").read_bytes())["exec"]
PAGE = (ROOT / "docs/wire.md").read_text()
SECRET, PLACE = b"secret-of-ana", Place("ses-1", "m-1", "1780315200")

each_vector = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])


def place_of(vector: dict[str, Any]) -> Place:
    return Place(vector["c"], vector["i"], vector["t"])


def nonces(monkeypatch: pytest.MonkeyPatch, *given: str) -> None:
    left = [bytes.fromhex(one) for one in given]
    monkeypatch.setattr("sense_worker.exec.wire.secrets.token_bytes", lambda size: left.pop(0))


@each_vector
def test_a_vector_is_reproduced(vector, monkeypatch):
    """Under the vector's nonces the fields of the entry and the sealed reply are those of the vector."""
    request, reply, secret = vector["request"], vector["reply"], vector["secret"].encode()
    nonces(monkeypatch, request["nonce"], reply["nonce"])
    built = build_request(secret, vector["c"], vector["i"], vector["t"], request["plain"].encode())
    expected = {"v": b"1", "s": request["s"], "b": bytes.fromhex(request["b"])} | {name: vector[name] for name in "cit"}
    assert built == expected
    assert list(built) == ["v", "c", "i", "t", "s", "b"]
    assert seal_reply(secret, place_of(vector), reply["plain"].encode()).hex() == reply["b"]


@each_vector
def test_a_vector_is_opened(vector):
    """The sealed request verifies and opens to the plain one, which is a request; the reply opens to its envelope."""
    secret, place, body = vector["secret"].encode(), place_of(vector), bytes.fromhex(vector["request"]["b"])
    assert verify_request([secret], place, body, vector["request"]["s"].encode()) == secret
    plain = open_request(secret, place, body)
    assert plain == vector["request"]["plain"].encode()
    request = parse_request(plain)
    assert (request.session_id, request.message_id) == (vector["c"], vector["i"])
    assert isinstance(request, CancelRequest if "cancel" in vector["name"] else ExecRequest)
    assert open_reply(secret, place, bytes.fromhex(vector["reply"]["b"])) == vector["reply"]["plain"].encode()


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_seals_and_opens_each_vector():
    """Node's own AES-GCM, HKDF and HMAC agree with ours on every vector, both ways."""
    module = json.dumps(str(ROOT / "examples/exec/exec.mjs"))
    script = f"""
import {{ entry, opened }} from {module};
const vectors = JSON.parse(await new Response(process.stdin).text());
console.log(JSON.stringify(vectors.map((v) => {{
  const session = {{ session_id: v.c, secret: v.secret }};
  const words = entry(session, v.i, v.t, v.request.plain, Buffer.from(v.request.nonce, "hex"));
  return [words.at(-3), words.at(-1).toString("hex"), opened(session, v.i, v.t, Buffer.from(v.reply.b, "hex"))];
}})));
"""
    argv = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(argv, input=json.dumps(VECTORS).encode(), capture_output=True, check=True)
    expected = [[v["request"]["s"], v["request"]["b"], v["reply"]["plain"]] for v in VECTORS]
    assert json.loads(done.stdout) == expected


def test_the_page_shows_the_vectors():
    """docs/wire.md holds the vectors as they are in the file."""
    blocks = [json.loads(block) for block in re.findall(r"```json\n(\[.*?\n\])\n```", PAGE, re.DOTALL)]
    assert VECTORS in blocks


@pytest.mark.parametrize(
    "other",
    [Place("ses-2", "m-1", "1780315200"), Place("ses-1", "m-2", "1780315200"), Place("ses-1", "m-1", "1780315201")],
)
def test_a_body_is_bound_to_its_place(other):
    """A request or reply sealed for one session, message and moment opens at no other, and has no signature there."""
    fields = build_request(SECRET, "ses-1", "m-1", "1780315200", b"{}")
    body, signature = bytes(fields["b"]), str(fields["s"]).encode()
    assert open_request(SECRET, PLACE, body) == b"{}"
    assert open_request(SECRET, other, body) is None
    assert verify_request([SECRET], other, body, signature) is None
    reply = seal_reply(SECRET, PLACE, b"{}")
    assert open_reply(SECRET, PLACE, reply) == b"{}"
    assert open_reply(SECRET, other, reply) is None


def test_lengths_are_part_of_what_is_bound():
    """Moving a byte from one part of the place to the next is another place."""
    sealed = seal_reply(SECRET, Place("ab", "c", "1"), b"{}")
    assert open_reply(SECRET, Place("a", "bc", "1"), sealed) is None


def test_a_request_is_no_reply():
    """The two directions have keys of their own: what was sealed for one does not open as the other."""
    body = bytes(build_request(SECRET, "ses-1", "m-1", "1780315200", b"{}")["b"])
    assert open_reply(SECRET, PLACE, body) is None
    assert open_request(SECRET, PLACE, seal_reply(SECRET, PLACE, b"{}")) is None


@pytest.mark.case("C10")
def test_every_changed_bit_is_noticed():
    """A body with any bit changed, cut anywhere, or signed otherwise, is refused and never raises."""
    fields = build_request(SECRET, "ses-1", "m-1", "1780315200", b'{"v":1}')
    body, signature = bytes(fields["b"]), str(fields["s"]).encode()
    for at in range(len(body)):
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        assert open_request(SECRET, PLACE, changed) is None
        assert verify_request([SECRET], PLACE, changed, signature) is None
        assert open_request(SECRET, PLACE, body[:at]) is None
    for wrong in (b"", b"\xff" * 64, signature.upper(), signature[:-1], signature + b"0", b"0" * 64):
        assert verify_request([SECRET], PLACE, body, wrong) is None


def test_both_live_secrets_open_the_door():
    """While a rotation overlaps, a message under either secret is verified as signed by that one."""
    for secret in (b"old", b"new"):
        fields = build_request(secret, "ses-1", "m-1", "1780315200", b"{}")
        body, signature = bytes(fields["b"]), str(fields["s"]).encode()
        assert verify_request((b"new", b"old"), PLACE, body, signature) == secret
        assert verify_request((b"newest",), PLACE, body, signature) is None


@pytest.mark.case("C11")
def test_an_empty_secret_seals_and_opens_nothing():
    """Without a secret nothing is built, verified or opened."""
    with pytest.raises(ValueError, match="empty"):
        build_request(b"", "ses-1", "m-1", "1780315200", b"{}")
    with pytest.raises(ValueError, match="empty"):
        seal_reply(b"", PLACE, b"{}")
    body = seal_reply(SECRET, PLACE, b"{}")
    assert open_reply(b"", PLACE, body) is None
    assert verify_request([b""], PLACE, body, b"0" * 64) is None


def test_no_nonce_is_used_twice():
    """Two messages of one place and text are sealed differently."""
    assert seal_reply(SECRET, PLACE, b"{}") != seal_reply(SECRET, PLACE, b"{}")
