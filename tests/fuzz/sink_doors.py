"""Options of every built-in sink, and classes that say they are sinks."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from runtime_core.errors import UsageError
from sinks.declared import Misdeclared, check
from sinks.protocol import SinkBase
from sinks.registry import BUILT_IN, Registry
from tests.fuzz.door import Door, one_line
from tests.fuzz.mutation import SCALARS, chance, drawn, json_value, with_changes

if TYPE_CHECKING:
    import random

REGISTRY = Registry()
SECRET = "hunter2"
GOOD = (
    *({}, {"path": "/var/log/events.jsonl"}, {"path": "/x", "fsync": False}, {"workspace": True}),
    *({"workspace": True, "file": ".sense/e.jsonl"}, {"workspace": True, "file": "x", "fsync": True}),
)
WORDS = ("path", "workspace", "file", "fsync", "Path", "url", "", "options", "model_config", "__class__", SECRET[:3])
PARTS = (
    *("/", "//", "//x", "/x/", "/a/../b", "/./x", "x", "", "/a\x00b", "/a\nb", "/" + "k" * 255),
    *("/" + "k" * 256, "/é" * 90, "~/x"),
    *("..", ".", "a/b", "a/b/c", "/abs", "a//b", "a/", "./a", "\u202e", "k" * 256, "é" * 128),
    *(f"/{SECRET}/../x", f"{SECRET}\n"),
    *(True, False, 1, 0, None, "true", [], {}),
)


class _Text(str):
    __slots__ = ()


def _odd(rng: random.Random) -> Any:
    """Return a value that a host's program could hand over and JSON has no name for."""
    deep: Any = []
    for _ in range(rng.choice((10, 70, 250, 3000))):
        deep = [deep]
    kinds = (
        float("nan"),
        float("inf"),
        b"x",
        {1},
        object(),
        10**400,
        10**5000,
        (1,),
        _Text("/x"),
        "\ud800",
        {1: 2},
        {None: 1},
        deep,
    )
    return rng.choice(kinds)


def _make_options(rng: random.Random) -> tuple[str, Any]:
    kind = rng.choice((*(sink.kind for sink in BUILT_IN), "jsonl", "jsonl", "webhook", "", "Jsonl"))
    options = with_changes(rng, drawn(rng, GOOD), WORDS, PARTS)
    if not options or chance(rng, 3):
        options[rng.choice(WORDS)] = drawn(rng, PARTS) if chance(rng, 2) else json_value(rng)
    if chance(rng, 8):
        options[rng.choice((*WORDS, 1, None))] = _odd(rng)
    return kind, {} if chance(rng, 10) else options


def _options(given: tuple[str, Any]) -> str:
    kind, options = given
    try:
        sink = REGISTRY.build(kind, "s", options)
    except UsageError as error:
        assert SECRET not in one_line(error), "a refusal shows a value"
        assert isinstance(REGISTRY.traits(kind, options), str)
        return "refused"
    held = json.loads(json.dumps(options, allow_nan=False))
    assert sink.kind == kind
    assert kind in {"inbox", "console", "memory", "jsonl"}
    assert kind == "jsonl" or not held
    if kind == "jsonl":
        _check_jsonl(held)
    assert sink.workspace is bool(held.get("workspace"))
    return "accepted"


def _check_jsonl(held: dict[str, Any]) -> None:
    assert set(held) <= {"path", "workspace", "file", "fsync"}
    assert all(type(held[name]) is bool for name in ("workspace", "fsync") if name in held)
    path, file = held.get("path", ""), held.get("file", "x")
    assert bool(path) != held.get("workspace", False)
    assert not path or (path[0] == "/" and path[1:2] not in {"", "/"} and os.path.normpath(path) == path)
    assert not path or "file" not in held
    parts = file.split("/")
    assert len(parts) <= 2
    assert not {"", ".", ".."} & set(parts)
    assert all(part.isprintable() and len(os.fsencode(part)) <= 255 for part in (*parts, *path.split("/")))


class _Open(BaseModel):
    pass


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Sink(SinkBase):
    kind: ClassVar[str] = "mine"
    Options: ClassVar[type[BaseModel]] = _Closed

    def deliver(self, batch):
        """Deliver."""
        return batch


async def _later(self, batch):
    return batch


def _three(self, batch, more):
    return more


def _lazy(self, batch):
    yield batch


ATTRIBUTES = (
    "contract",
    "kind",
    "Options",
    "lands",
    "partitioned",
    "transactional",
    "local",
    "deadline_s",
    "concurrency",
)
METHODS = ("batch_size", "workspace", "open", "deliver", "close", "write", "__init__", "x")
VALUES: tuple[Any, ...] = (
    *SCALARS,
    *(None, True, 1, 1.0, 2, 0, -1, 5000, 5001, 3600, 3600.1, float("nan"), float("inf"), 10**400, "mine"),
    *("Mine", "m" * 33, ""),
    *(("personal",), ("personal", "personal"), (), ("brain", "local"), ["local"], ("cloud",), ([],), int),
    *(_Closed, _Open, _Closed()),
    *(_later, _three, _lazy, lambda self: None, lambda self, batch: [], lambda *given: [], len),
    *(print, property(lambda self: True)),
    *(staticmethod(_three), classmethod(_three), b"x", object, type, "\ud800", {1: 2}),
)


def _make_class(rng: random.Random) -> Any:
    if chance(rng, 50):
        return rng.choice(VALUES)
    names = (*ATTRIBUTES, *METHODS)
    members = {rng.choice(names): rng.choice(VALUES) for _ in range(rng.choice((0, 1, 1, 2, 3)))}
    bases = rng.choice(((_Sink,), (_Sink,), (_Sink,), (SinkBase,), (object,)))
    return type("Made", bases, {**members, "members": members})


def _class(made: Any) -> str:
    try:
        sink = check(made, built_in=False)
    except Misdeclared as error:
        assert str(error)
        return "refused"
    assert type(sink.contract) is int
    assert sink.contract == 1
    assert isinstance(sink.kind, str)
    assert sink.kind.isidentifier()
    assert sink.kind == sink.kind.lower()
    assert len(sink.kind) <= 32
    assert sink.Options.model_config["extra"] == "forbid"
    assert sink.lands
    assert set(sink.lands) <= {"personal", "brain", "local"}
    assert sink.transactional is False
    assert getattr(sink, "write", None) is None
    assert 0 < sink.deadline_s <= 3600
    assert 1 <= sink.concurrency <= 256
    assert 1 <= sink.batch_size <= 5000
    assert callable(sink.deliver)
    return "accepted"


DOORS = {
    "sinks": Door("sinks", _make_options, _options, [(sink.kind, dict(one)) for sink in BUILT_IN for one in GOOD]),
    "sink_class": Door("sink_class", _make_class, _class, BUILT_IN[2:]),
}
