from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, field_validator

from runtime_core.errors import UsageError
from sinks.inbox import Inbox
from sinks.jsonl import Jsonl
from sinks.memory import Memory
from sinks.optional import Renewed
from sinks.protocol import LANDS, Delivered, Host, SinkBase, TransactionalSink
from sinks.registry import BUILT_IN, Registry, Traits

OPTIONS: dict[str, Any] = {
    "jsonl": {"workspace": True},
    "notify": {"urls": ["json://hooks.example/"]},
    "redis_stream": {"url": "redis://127.0.0.1", "stream": "app:events"},
    "webhook": {"url": "https://hook.test/x", "secret": f"whsec_{'A' * 32}"},
}
"""What a kind cannot be built without."""


class PagerOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    secret: str = "none"
    levels: tuple[int, ...] = (1,)
    fails: str = ""

    @field_validator("fails")
    @classmethod
    def _fails(cls, fails: str) -> str:
        if fails == "key":
            raise KeyError("tok-123")
        return fails


class Pager(SinkBase):
    kind = "pager"
    Options = PagerOptions
    deadline_s = 5

    def __init__(self, name: str, options: PagerOptions) -> None:
        super().__init__(name, options)
        if options.secret == "tok-123":
            raise LookupError(f"no pager behind {options.secret}")
        if options.secret == "tok-456":
            raise UsageError("options.secret", "is not one of ours", "ask the pager team")

    @property
    def workspace(self) -> Any:
        return "perhaps" if self.options == PagerOptions(fails="workspace") else False

    def deliver(self, batch):
        return [Delivered() for _ in batch]


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.register(Pager)
    return made


def found(registry: Registry, kind: str) -> Any:
    return registry.get(kind)


def refused(registry: Registry, kind: str, options: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        registry.build(kind, "s", options)
    assert registry.traits(kind, options) == str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


def test_the_built_in_kinds():
    """The kinds that ship are there without any plugin."""
    assert Registry().kinds() == ("console", "inbox", "jsonl", "memory", "notify", "redis_stream", "webhook")
    assert Registry().get("jsonl") is Jsonl
    assert Registry().get("nothing") is None
    assert Registry().faults == ()


@pytest.mark.parametrize("plugin", BUILT_IN, ids=lambda plugin: plugin.kind)
def test_every_built_in_kind_can_be_built(plugin):
    """Every kind that ships builds, opens and closes, and refuses an option it does not know."""
    registry = Registry(Host(services=("json",)))
    options = OPTIONS.get(plugin.kind, {})
    sink = registry.build(plugin.kind, "s", options)
    assert type(sink) is plugin
    assert isinstance(sink, TransactionalSink) == plugin.transactional
    sink.open()
    sink.close()
    error = refused(registry, plugin.kind, {**options, "colour": "red"})
    assert (error.place, error.reason) == ("options.colour", "extra inputs are not permitted")
    assert error.way_out.startswith(f"options of {plugin.kind}: ")
    Memory.forget()


def test_traits_of_the_built_in_kinds():
    """Traits come from the kind and, for the workspace, from its options."""
    registry = Registry()
    inbox = Traits(
        partitioned=True,
        workspace=False,
        transactional=True,
        local=True,
        deadline_s=30.0,
        concurrency=1,
        batch_size=500,
        lands=LANDS,
    )
    assert registry.traits("inbox", {}) == inbox
    in_file, beneath = (
        registry.traits("jsonl", {"path": "/var/log/e.jsonl"}),
        registry.traits("jsonl", {"workspace": True}),
    )
    assert in_file
    assert beneath
    assert (in_file.workspace, beneath.workspace) == (False, True)
    assert (in_file.partitioned, in_file.transactional, in_file.local) == (False, False, True)


def test_traits_of_a_missing_kind():
    """A kind that is not there has no traits, and says so."""
    assert str(Registry().traits("pager", {})).startswith("kind: there is no sink kind 'pager' (kinds: console, ")


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({}, "options"),
        ({"path": "relative"}, "options.path"),
        ({"path": ""}, "options.path"),
        ({"path": "/"}, "options.path"),
        ({"path": "/var/log/"}, "options.path"),
        ({"path": "/var/../log"}, "options.path"),
        ({"path": "/var//log"}, "options.path"),
        ({"path": "/var/a\nb"}, "options.path"),
        ({"path": "/var/a\0b"}, "options.path"),
        ({"path": "/" + "é" * 128}, "options.path"),
        ({"path": None}, "options.path"),
        ({"path": 7}, "options.path"),
        ({"path": "/a", "fsync": "false"}, "options.fsync"),
        ({"path": "/a", "fsync": 0}, "options.fsync"),
        ({"path": "//a"}, "options.path"),
        ({"path": "/a", "workspace": True}, "options"),
        ({"path": "/a", "file": "b"}, "options"),
        ({"workspace": False}, "options"),
        ({"workspace": 1}, "options.workspace"),
        ({"workspace": True, "file": "/a"}, "options.file"),
        ({"workspace": True, "file": "../a"}, "options.file"),
        ({"workspace": True, "file": "a/.."}, "options.file"),
        ({"workspace": True, "file": "./a"}, "options.file"),
        ({"workspace": True, "file": "a/"}, "options.file"),
        ({"workspace": True, "file": "a/b/c"}, "options.file"),
        ({"workspace": True, "file": ""}, "options.file"),
        ({"workspace": True, "file": "a\x1b"}, "options.file"),
        ({"path": "/a\ud800"}, "options"),
        ({"path": float("nan")}, "options"),
        ({"path": object()}, "options"),
        ([1], "options"),
    ],
)
def test_bad_options_of_jsonl(options: Any, place: str):
    """A wrong option is refused in one line that names the option and what there is, and not its value."""
    error = refused(Registry(), "jsonl", options)
    assert error.place == place
    assert error.way_out == "options of jsonl: path, workspace, file, fsync; see docs/sinks.md"
    assert "\n" not in str(error)


@pytest.mark.parametrize("name", ["a", ".sense/a", "é.jsonl"])
def test_good_files_beneath_a_workspace(name: str):
    """A name, or a folder and a name, is a place beneath the workspace."""
    assert Registry().build("jsonl", "s", {"workspace": True, "file": name}).workspace


def test_several_bad_options_are_counted():
    """The first mistake is told with the number of the others."""
    error = refused(Registry(), "jsonl", {"path": 1, "fsync": 1, "x": 1})
    assert error.place == "options.path"
    assert error.reason.endswith(", and 2 more")


def test_options_are_read_as_json_and_strictly(registry: Registry):
    """A list is a tuple where the model wants one, as in the stored JSON; a text is no number."""
    assert registry.build("pager", "s", {"levels": [1, 2]}).options.levels == (1, 2)  # type: ignore[attr-defined]
    assert refused(registry, "pager", {"levels": [1, "2"]}).place == "options.levels.1"


@pytest.mark.case("C53")
@pytest.mark.parametrize("options", [{"secret": ["tok-123"]}, {"secret": "tok-123"}, {"fails": "key"}])
def test_no_refusal_shows_a_value(registry: Registry, options: dict[str, Any]):
    """Neither a wrong value nor what a plugin says of it is shown."""
    assert "tok-123" not in str(refused(registry, "pager", options))


@pytest.mark.case("C52")
def test_a_sink_that_raises_while_it_is_built(registry: Registry):
    """A plugin that fails while it is built is refused with the kind of its exception and the line; others work."""
    error = refused(registry, "pager", {"secret": "tok-123"})
    assert error.place == "sink kind pager"
    assert error.reason.startswith("raised LookupError while it was built, at ")
    assert "test_registry.py:" in error.reason
    assert isinstance(registry.traits("pager", {"secret": "fine"}), Traits)


def test_a_sink_that_refuses_its_options_itself(registry: Registry):
    """A plugin that raises UsageError chooses the text."""
    error = refused(registry, "pager", {"secret": "tok-456"})
    assert str(error) == "options.secret: is not one of ours (ask the pager team)"


def test_a_sink_is_told_what_the_host_allows_and_may_refuse():
    """What a registry was made with reaches every sink right after it was built; a plain registry allows nothing."""

    class Guarded(Pager):
        kind = "guarded"

        def admit(self, host: Host) -> None:
            if "pager" not in host.services:
                raise UsageError("options.service", "is not enabled", "SENSE_NOTIFY_SERVICES=pager")

    closed, opened = Registry(), Registry(Host(services=("pager",)))
    for registry in (closed, opened):
        registry.register(Guarded)

    assert str(refused(closed, "guarded", {})) == "options.service: is not enabled (SENSE_NOTIFY_SERVICES=pager)"
    assert closed.fault("guarded", {}) == "options.service: is not enabled (SENSE_NOTIFY_SERVICES=pager)"
    assert opened.fault("guarded", {}) is None


def test_a_plugin_that_signs_is_rotated_like_a_built_in_kind():
    """What a class offers is used; what it raises is told by its kind and place, never by its text."""

    class Signing(Pager):
        kind = "signing"
        secret_options = ("secret",)
        probed: ClassVar[list[str]] = []

        @classmethod
        def renew(cls, options, now, until):
            if until < now:
                raise LookupError("tok-123")
            return Renewed({**options, "secret": "new"}, "new")

        def probe(self):
            self.probed.append(self.name)

    registry = Registry()
    registry.register(Signing)
    assert (registry.own_secrets("signing"), registry.own_secrets("jsonl")) == (("secret",), ())
    assert registry.renew("signing", {"levels": [2]}, 1, 2) == ({"levels": [2], "secret": "new"}, "new")
    with pytest.raises(UsageError, match="raised LookupError while it was given a new secret") as caught:
        registry.renew("signing", {}, 2, 1)
    assert "tok-123" not in str(caught.value)
    with pytest.raises(UsageError, match="has no secret of its own"):
        registry.renew("jsonl", {}, 1, 2)
    registry.try_out("signing", "tried", {})
    assert Signing.probed == ["tried"]


def test_a_workspace_property_that_answers_no_truth(registry: Registry):
    """`workspace` is True or False; anything else could open a folder by accident."""
    error = refused(registry, "pager", {"fails": "workspace"})
    assert error.reason == "its property workspace answers neither True nor False"


def test_a_missing_kind_names_those_there_are():
    """An unknown kind is refused with the kinds there are."""
    error = refused(Registry(), "pagr", {})
    assert str(error) == f"kind: there is no sink kind 'pagr' (kinds: {', '.join(Registry().kinds())})"


def test_a_host_registers_a_class_of_its_own(registry: Registry):
    """A class of the process is a kind like any other, in this registry only."""
    assert registry.kinds() == tuple(sorted((*Registry().kinds(), "pager")))
    assert found(registry, "pager") is Pager
    assert Registry().get("pager") is None
    assert registry.traits("pager", {}) == Traits(
        partitioned=False,
        workspace=False,
        transactional=False,
        local=False,
        deadline_s=5.0,
        concurrency=1,
        batch_size=1,
        lands=LANDS,
    )


@pytest.mark.parametrize("plugin", [Pager, type("Mine", (Memory,), {"kind": "inbox"})])
def test_a_kind_is_registered_once(registry: Registry, plugin: type):
    """A kind that exists, built in or not, is not replaced."""
    with pytest.raises(UsageError, match="is taken"):
        registry.register(plugin)
    assert (found(registry, "pager"), found(registry, "inbox")) == (Pager, Inbox)
