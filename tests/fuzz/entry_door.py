"""Stream entries through `admit`: the word that the table of DESIGN §7 gives, by a naive reading of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import TYPE_CHECKING, Any

from runtime_core.errors import DoorError
from runtime_core.event import BODY_LIMIT
from runtime_core.identity import Activation, Credential, Principal, Route, Session, Sink
from runtime_core.memory import MemoryAuthority
from runtime_core.pack import PackRevision, read_pack
from sense_worker.intake.door import Turned, admit
from sense_worker.intake.stream import StreamEntry
from sense_worker.wire import check_entry, parse_entry
from tests.fuzz.door import Door, one_line
from tests.fuzz.json_doors import body_word, exact, make_body
from tests.fuzz.mutation import TOKENS, chance, with_bytes

if TYPE_CHECKING:
    import random

Fields = dict[bytes, bytes]
NOW = 1_780_315_200_000_000
TENANT = "acme"
SECRETS = {name: name.encode() * 8 for name in ("ok", "old", "gone", "cut", "off", "end", "bare")}
"""Activations by what is wrong with them: revoked, its session revoked, its principal disabled, expired, no pack."""
WORDS = {"gone": "activation_revoked", "cut": "session_revoked", "off": "principal_disabled", "end": "expired"}
PREVIOUS = b"the secret before"
TIMES = (
    *(b"1780315200", b"1780315200.5", b"1780315200.1234567", b"1780314900", b"1780314899.999999", b"1780315500"),
    *(b"1780315500.000001", b"1780315200000", b"", b"-1", b"+1780315200", b"1e9", b"0", b"99999999999", b"1780315200."),
    *(b" 1780315200", b"1780315200\n", b"\xd9\xa1", b"NaN", b"0x6", b"1_780_315_200"),
)
IDS = (b"m1", b"!" * 128, b"!" * 129, b"", b"a b", b"\xff", b"a\x00", b"~", b"\xc3\xa9", b"a\n")
NAMES = (b"V", b"p", b"tenant", b"", b"\xff\x00", b"k" * 500, b"tp")
DATA: tuple[Any, ...] = (
    {},
    {"n": 1},
    {"n": 1.0},
    {"n": True},
    {"n": "1"},
    {"n": None},
    {"n": 2**63 - 1},
    {"m": [[{}]]},
)


def _source() -> MemoryAuthority:
    source = MemoryAuthority()
    for name in ("ana", "off"):
        source.put_principal(Principal(TENANT, name, "human", operator=False, disabled=name == "off"))
    for name, secret in SECRETS.items():
        who = "off" if name == "off" else "ana"
        source.put_session(Session(f"s-{name}", TENANT, who, NOW if name == "end" else NOW + 1, name == "cut"))
        pack_id = "none" if name == "bare" else "mail"
        credential = Credential(secret, PREVIOUS, NOW + 1 if name == "old" else NOW)
        source.put_activation(
            Activation(name, TENANT, f"s-{name}", pack_id, None, None, revoked=name == "gone", credential=credential)
        )
    triggers = [
        {"ref": "new_item"},
        {"ref": "counted", "data": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    ]
    entry = {"operation": "read", "privacy": {"land": "personal"}}
    surface = {"id": "mail", "adapter": "sense_only", "stimulusTriggers": triggers}
    policy = {"surface_id": "mail", "version": 1, "verbs": {}, "stimuli": {"new_item": entry, "counted": entry}}
    pack = read_pack(json.dumps(surface).encode(), json.dumps(policy).encode(), b"")
    source.put_revision(PackRevision(TENANT, 1, pack, {}))
    source.put_sink(Sink(TENANT, "inbox", "inbox", "tenant", None, partitioned=True, workspace=False, held=None))
    source.put_route(Route("r1", TENANT, "ana", "mail", "*", "inbox", None, None))
    return source


AUTHORITY = _source().snapshot(TENANT)


def _signature(secret: bytes, fields: Fields) -> bytes:
    parts = (b"sense1", *(fields.get(name, b"") for name in (b"c", b"i", b"t", b"b")))
    message = b"".join(str(len(part)).encode() + b":" + part + b"," for part in parts)
    return hmac.new(secret, message, hashlib.sha256).hexdigest().encode()


def _body(rng: random.Random) -> bytes:
    kind = rng.randrange(8)
    if kind == 0:
        return make_body(rng)
    ref = rng.choice(("new_item", "counted", "counted", "other", "New_item", "*"))
    document: dict[str, Any] = {"ref": ref, "data": rng.choice(DATA)}
    if kind == 1:
        document[rng.choice(("subject", "x", "tenant", "occurred_at"))] = rng.choice(
            ("s", "2026-06-01T12:00:00Z", None)
        )
    raw = json.dumps(document).encode()
    if kind == 2 and chance(rng, 20):
        return raw + b" " * (BODY_LIMIT - len(raw) + rng.randrange(-1, 2))
    return with_bytes(rng, raw) if kind == 3 else raw


def _make(rng: random.Random) -> Fields:
    name = rng.choice((*SECRETS, "ok", "ok", "ok", "ok", "old"))
    moment = rng.choice(TIMES) if chance(rng, 4) else TIMES[0]
    message_id = rng.choice(IDS) if chance(rng, 6) else IDS[0]
    fields: Fields = {b"v": b"1", b"c": name.encode(), b"i": message_id, b"t": moment, b"b": _body(rng)}
    if chance(rng, 6):
        fields[b"tp"] = rng.choice((b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"\xff", b"x" * 129, b""))
    for signed in (False, True):
        if signed:
            secret = PREVIOUS if chance(rng, 8) else SECRETS.get(name, b"")
            fields[b"s"] = _signature(secret, fields)
        if chance(rng, 5):
            _spoil(rng, fields)
    return fields


def _spoil(rng: random.Random, fields: Fields) -> None:
    name = rng.choice(list(fields))
    kind = rng.randrange(5)
    if kind == 0:
        del fields[name]
    elif kind == 1:
        fields[name] = with_bytes(rng, fields[name])
    elif kind == 2:
        fields[rng.choice(NAMES)] = rng.choice(TOKENS)
    elif kind == 3:
        fields[name] = rng.choice(
            (b"", b"1", b"2", b"1.0", b"\x00", b"ok", b"x" * 200, fields[name].upper(), b" " + fields[name])
        )
    else:
        other = rng.choice(list(fields))
        fields[name], fields[other] = fields[other], fields[name]


def expected_word(fields: Fields) -> str:
    """Return the first word of the table that applies, `accepted` for none."""
    body, name = fields.get(b"b", b""), fields.get(b"c", b"").decode("latin-1")
    if not body:
        return "no_body"
    if len(body) > BODY_LIMIT:
        return "too_large"
    if name not in SECRETS:
        return "unknown_credential"
    live = [SECRETS[name], PREVIOUS] if name == "old" else [SECRETS[name]]
    if fields.get(b"s", b"") not in [_signature(secret, fields) for secret in live]:
        return "bad_signature"
    moment = re.fullmatch(rb"([0-9]{1,11})(\.[0-9]{1,6})?", fields.get(b"t", b""))
    if moment:
        age = NOW - int(moment[1]) * 10**6 - int(((moment[2] or b".0")[1:] + b"000000")[:6])
        if abs(age) > 300 * 10**6:
            return "stale" if age > 0 else "early"
    if name in WORDS:
        return WORDS[name]
    good = moment and fields.get(b"v") == b"1" and re.fullmatch(rb"[!-~]{1,128}", fields.get(b"i", b""))
    word = body_word(body)
    if not good or word == "malformed":
        return "malformed"
    if set(fields) - {b"v", b"c", b"i", b"t", b"s", b"b", b"tp"} or word == "unknown_field":
        return "unknown_field"
    return "pack_missing" if name == "bare" else _against_pack(exact(body))


def _against_pack(event: Any) -> str:
    if event["ref"] not in {"new_item", "counted"}:
        return "undeclared_ref"
    if event["ref"] == "new_item":
        return "accepted"
    number = event["data"].get("n")
    whole = type(number) is int or (type(number) is float and number.is_integer())
    return "accepted" if whole else "invalid_data"


def _judge(fields: Fields) -> str:
    try:
        entry = parse_entry(fields)
        check_entry(entry)
        parsed = True
    except DoorError as error:
        one_line(error)
        parsed = False
    stream_entry = StreamEntry(TENANT, "sense:acme:events", "1780315200000-0", fields, 1)
    verdict = admit(stream_entry, AUTHORITY, NOW, 300.0)
    word = expected_word(fields)
    if isinstance(verdict, Turned):
        assert verdict.detail.isprintable()
        assert verdict.word == word, f"{verdict.word}, not {word}: {verdict.detail}"
        return word
    assert word == "accepted", f"accepted, not {word}"
    assert parsed
    key = b"".join(b"%d:%s" % (len(part), part) for part in (b"acme", b"ana", b"mail", fields[b"i"]))
    assert verdict.facts.event_id == hashlib.sha256(key).digest()[:16]
    assert verdict.body_digest == hashlib.sha256(fields[b"b"]).digest()
    assert verdict.event.data == exact(fields[b"b"])["data"]
    assert [route.id for route in verdict.routes] == ["r1"]
    assert verdict.traceparent is None or (verdict.traceparent.isprintable() and len(verdict.traceparent) <= 128)
    return "accepted"


DOORS = {"entry": Door("entry", _make, _judge)}
