# ruff: noqa: PIE807 - signatures are what is tested

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pytest
from pydantic import BaseModel

from runtime_core.errors import UsageError
from sinks.declared import BATCH_LIMIT, CONCURRENCY_LIMIT, DEADLINE_LIMIT_S
from sinks.memory import Memory
from sinks.protocol import NoOptions, Sink, SinkBase
from sinks.registry import Registry, Traits


class Good(SinkBase):
    kind = "good"

    def deliver(self, batch):
        return []


class Bare:
    """Everything the contract wants, inheriting nothing."""

    contract = 1
    kind = "bare"
    Options = NoOptions
    lands = ("local",)
    partitioned = transactional = local = False
    deadline_s = 0.5
    concurrency = batch_size = 1
    workspace = True

    def __init__(self, *given): ...

    def open(self, *, soon=True): ...

    def deliver(self, deliveries, /, extra=None): ...

    def close(self): ...


class Loose(BaseModel):
    pass


class Keyed(NoOptions):
    secret: str = ""


class Abstract(Good, ABC):
    @abstractmethod
    def flush(self): ...


class Stub(Sink):
    contract = 1
    kind = "stub"
    Options = NoOptions
    lands = ("local",)
    partitioned = transactional = local = False
    deadline_s = 1.0
    concurrency = batch_size = 1


def sink(**attributes: Any) -> type:
    return type("Bad", (Good,), attributes)


def without(name: str) -> type:
    attributes = {key: value for key, value in vars(Bare).items() if key not in {name, "__dict__", "__weakref__"}}
    return type("Bad", (), attributes)


def refusal(plugin: Any) -> str:
    registry = Registry()
    with pytest.raises(UsageError) as caught:
        registry.register(plugin)
    assert registry.kinds() == Registry().kinds()
    return caught.value.reason


@pytest.mark.parametrize("plugin", [Good, Bare, sink(deadline_s=30), sink(batch_size=BATCH_LIMIT)])
def test_a_sink_is_what_it_has(plugin: Any):
    """A class is a sink by what it declares: inherited or not, however it calls its arguments."""
    registry = Registry()
    registry.register(plugin)
    assert isinstance(registry.traits(plugin.kind, {}), Traits)
    assert registry.get(plugin.kind) is plugin


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None])
def test_another_contract_is_refused(version: object):
    """Only version 1, by type and value, is spoken."""
    assert refusal(sink(contract=version)) == f"Bad.contract is {version!r}; this runtime speaks sink contract 1"


@pytest.mark.parametrize(
    ("attribute", "values", "wanted"),
    [
        (
            "kind",
            ["", "Good", "1st", "a-b", "a.b", "é", "a\n", "a" * 33, None, b"good", property(lambda _: "a")],
            "a text [a-z][a-z0-9_]{0,31}",
        ),
        ("Options", [None, {}, dict, NoOptions()], "a pydantic model"),
        (
            "lands",
            [(), ["local"], "local", ("mars",), ("local", "local"), None, ([],)],
            "a tuple of personal, brain, local",
        ),
        ("partitioned", [None, 0, 1, "yes"], "True or False"),
        ("transactional", [None, 0, 1, "yes"], "True or False"),
        ("local", [None, 0, 1, "yes"], "True or False"),
        (
            "deadline_s",
            [0, -1, float("nan"), float("inf"), DEADLINE_LIMIT_S + 1, "30", None, True],
            "seconds, over 0 and up to 3600",
        ),
        ("concurrency", [0, -1, CONCURRENCY_LIMIT + 1, 1.0, True, None], "an integer from 1 to 256"),
        ("batch_size", [0, -1, BATCH_LIMIT + 1, 1.0, True, None], "an integer from 1 to 5000"),
    ],
)
def test_a_wrong_attribute_is_refused(attribute: str, values: list[object], wanted: str):
    """Every attribute is looked at by type and range; the refusal names class, attribute, value and what it may be."""
    for value in values:
        reason = refusal(sink(**{attribute: value}))
        assert reason.startswith(f"Bad.{attribute} is ")
        assert reason.endswith(f", not {wanted}")


def test_a_missing_attribute_is_refused():
    """A class that leaves an attribute out gets no default."""
    assert refusal(without("batch_size")) == "Bad.batch_size is None, not an integer from 1 to 5000"


def test_options_refuse_what_they_do_not_know():
    """A model that ignores unknown options would hide a misspelt one."""
    reason = "Bad.Options lets unknown options pass; it wants ConfigDict(extra='forbid')"
    assert refusal(sink(Options=Loose)) == reason


@pytest.mark.parametrize(
    ("method", "signature"),
    [
        ("open", "open(self)"),
        ("deliver", "deliver(self, batch)"),
        ("close", "close(self)"),
    ],
)
def test_a_missing_method_is_refused(method: str, signature: str):
    """A method that is not there is named with its arguments."""
    assert refusal(without(method)) == f"Bad has no method {signature}"


def test_a_missing_deliver_is_refused_over_the_defaults():
    """The defaults of SinkBase do not deliver."""
    assert refusal(type("Bad", (SinkBase,), {"kind": "bad"})) == "Bad has no method deliver(self, batch)"


def test_the_protocols_own_stubs_are_no_methods():
    """A class that names the Protocol as its parent inherits nothing that works."""
    assert refusal(Stub) == "Stub has no method __init__(self, name, options)"


def test_a_class_without_a_constructor_is_refused():
    """A sink takes its name and options."""
    assert refusal(without("__init__")) == "Bad.__init__ takes no argument 'name'"


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"deliver": lambda self: []}, "Bad.deliver takes no argument 'batch'"),
        ({"deliver": lambda: []}, "Bad.deliver takes no argument 'self'"),
        (
            {"deliver": lambda self, batch, context: []},
            "Bad.deliver wants an argument 'context' that the runtime does not give",
        ),
        (
            {"deliver": lambda self, batch, *, context: []},
            "Bad.deliver wants an argument 'context' that the runtime does not give",
        ),
        ({"open": lambda self, loop: None}, "Bad.open wants an argument 'loop' that the runtime does not give"),
        ({"close": lambda: None}, "Bad.close takes no argument 'self'"),
        ({"__init__": lambda self, name: None}, "Bad.__init__ takes no argument 'options'"),
        ({"admit": lambda self: None}, "Bad.admit takes no argument 'host'"),
        (
            {"__init__": lambda self, name, options, tenant: None},
            "Bad.__init__ wants an argument 'tenant' that the runtime does not give",
        ),
    ],
)
def test_a_wrong_argument_is_named(attributes: dict[str, Any], reason: str):
    """Arguments are counted, and the first that is wrong is named."""
    assert refusal(sink(**attributes)) == reason


async def _coroutine(self, batch): ...


def _generator(self, batch):
    yield


async def _stream(self, batch):
    yield


@pytest.mark.parametrize("function", [_coroutine, _generator, _stream])
def test_a_method_that_does_its_work_later_is_refused(function: Any):
    """A coroutine or generator would answer at once and deliver nothing."""
    assert refusal(sink(deliver=function)).startswith("Bad.deliver is a coroutine or generator")


@pytest.mark.parametrize("value", [None, 7, staticmethod(len), classmethod(type), property(len), Loose()])
def test_what_is_no_method_is_refused(value: Any):
    """Something else under a method's name is said so."""
    assert refusal(sink(deliver=value)).startswith(("Bad.deliver is no method but ", "Bad has no method deliver"))


@pytest.mark.parametrize("value", [None, "yes", lambda self: True])
def test_workspace_is_a_property(value: Any):
    """A method in the place of the property would read as true."""
    assert refusal(sink(workspace=value)).startswith(("Bad.workspace is ", "Bad has no property workspace"))


def _renew(cls, options, now, until): ...


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"secret_options": ("key",)}, "Bad.secret_options is ('key',), not a tuple of options"),
        ({"secret_options": ()}, "Bad.secret_options is (), not a tuple of options"),
        ({"secret_options": ["secret"]}, "Bad.secret_options is ['secret'], not a tuple of options"),
        ({"renew": classmethod(_renew)}, "Bad.secret_options is None, not a tuple of options"),
        ({"secret_options": ("secret",)}, "Bad has no class method renew(cls, options, now, until)"),
        (
            {"secret_options": ("secret",), "renew": lambda self, options, now, until: None},
            "Bad has no class method renew(cls, options, now, until)",
        ),
        (
            {"secret_options": ("secret",), "renew": classmethod(lambda cls, options: None)},
            "Bad.renew takes no argument 'now'",
        ),
    ],
)
def test_a_sink_that_signs_names_its_options_and_renews_them(attributes: dict[str, Any], reason: str):
    """`sink rotate` replaces what is named, by a class method: the first secret is made before there are options."""
    assert refusal(sink(Options=Keyed, **attributes)) == reason
    assert sink(Options=Keyed, secret_options=("secret",), renew=classmethod(_renew))


def test_an_instance_takes_no_more_than_its_class_declares():
    """`narrow` is for less: what the class declares was checked, and is the bound."""
    narrowed = sink(batch_size=10, concurrency=4, deadline_s=5.0)("s", NoOptions())
    narrowed.narrow(batch_size=3, concurrency=100, deadline_s=9.0)
    assert (narrowed.batch_size, narrowed.concurrency, narrowed.deadline_s) == (3, 4, 5.0)


def test_an_abstract_class_is_refused():
    """A class that cannot be built names what it leaves open."""
    assert refusal(Abstract) == "Abstract leaves flush abstract"


@pytest.mark.parametrize("plugin", [None, Good("g", NoOptions()), len, "good"])
def test_what_is_no_class_is_refused(plugin: object):
    """An instance or a factory is no sink class."""
    assert refusal(plugin).endswith(" is no class")


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"write": lambda self, batch, rows: None}, "has a method write"),
        ({"transactional": True}, "is transactional"),
        ({"write": lambda self, batch, rows: None, "transactional": True}, "has a method write"),
    ],
)
def test_only_built_in_kinds_are_transactional(attributes: dict[str, Any], what: str):
    """A plugin cannot stand in the ledger's transaction, nor be taken for one that does by the name of a method."""
    assert refusal(sink(**attributes)) == f"Bad {what}, which contract 1 keeps for built-in kinds"


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"transactional": True}, "Bad.write and Bad.transactional go together"),
        ({"write": lambda self, batch, rows: None}, "Bad.write and Bad.transactional go together"),
        ({"write": lambda self, batch: None, "transactional": True}, "Bad.write takes no argument 'rows'"),
    ],
)
def test_a_built_in_kind_is_checked_too(monkeypatch: pytest.MonkeyPatch, attributes: dict[str, Any], reason: str):
    """A built-in kind that is wrong stops the start instead of its first delivery."""
    monkeypatch.setattr("sinks.registry.BUILT_IN", (type("Bad", (Memory,), attributes),))
    with pytest.raises(Exception, match=f"^{reason}$"):
        Registry()
