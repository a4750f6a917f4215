from __future__ import annotations

import importlib.metadata
import os
import sys
import threading
from typing import TYPE_CHECKING, ClassVar

import pytest

from runtime_core.errors import UsageError
from sense_worker.opening import Marks
from sinks import SinkBase, guarded, plugins
from sinks.plugins import Fault
from sinks.registry import Registry, Traits
from tests.sinks.sites import GOOD, Site

if TYPE_CHECKING:
    from pathlib import Path

BUILT_IN = Registry().kinds()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "tried", lambda *_, **__: {})  # none of these ends its process: see test_trial
    made = Site(tmp_path)
    yield made
    for module in made.modules:
        sys.modules.pop(module, None)


def test_a_plugin_is_a_kind(site: Site):
    """An installed package with an entry point of the group brings its kind."""
    site.good("zz-pager", "pager")
    registry = Registry.load()
    assert registry.kinds() == tuple(sorted((*BUILT_IN, "pager")))
    assert registry.faults == ()
    assert registry.build("pager", "p", {}).kind == "pager"


@pytest.mark.case("C52")
def test_broken_plugins_leave_the_others_alone(site: Site):
    """Plugins that cannot be loaded are reported by entry point and package; the good one and the built-ins work."""
    site.install("zz-gone", "gone = zz_nowhere:Sink")
    site.install("zz-raising", "raising = zz_raising:Sink", "raise OSError('two\\nlines')")
    site.install("zz-leaving", "leaving = zz_leaving:Sink", "raise SystemExit(3)")
    site.install("zz-halfway", "halfway = zz_halfway:Sink", "pass")
    site.install("zz-wordy", "wordy = no module at all", "pass")
    site.good("zz-good", "good")
    registry = Registry.load()
    assert registry.kinds() == tuple(sorted((*BUILT_IN, "good")))
    assert [(fault.entry_point, fault.package) for fault in registry.faults] == [
        ("gone", "zz-gone 1.0"),
        ("halfway", "zz-halfway 1.0"),
        ("leaving", "zz-leaving 1.0"),
        ("raising", "zz-raising 1.0"),
        ("wordy", "zz-wordy 1.0"),
    ]
    gone, halfway, leaving, raising, _ = registry.faults
    assert gone.reason == "ModuleNotFoundError: No module named 'zz_nowhere'"
    assert halfway.reason == "AttributeError: module 'zz_halfway' has no attribute 'Sink'"
    assert leaving.reason == "SystemExit: 3"
    assert raising.reason == "OSError: two"


@pytest.mark.case("C52")
def test_a_plugin_that_raises_when_built_costs_its_own_sink(site: Site):
    """It is a kind, its sink has no traits, and building it says why; the others build."""
    source = GOOD.format(kind="fragile") + "\n        def __init__(self, name, options):\n            1 / 0\n"
    site.install("zz-fragile", "fragile = zz_fragile:Sink", source)
    site.good("zz-good", "good")
    registry = Registry.load()
    assert registry.faults == ()
    assert str(registry.traits("fragile", {})).startswith(
        "sink kind fragile: raised ZeroDivisionError while it was built"
    )
    with pytest.raises(UsageError, match=r"^sink kind fragile: raised ZeroDivisionError while it was built, at .*zz_f"):
        registry.build("fragile", "f", {})
    assert isinstance(registry.traits("good", {}), Traits)


def test_a_missing_kind_names_the_fault(site: Site):
    """Asking for the kind of a plugin that was left out tells why it was."""
    site.install("zz-gone", "gone = zz_nowhere:Sink")
    with pytest.raises(UsageError) as caught:
        Registry.load().build("gone", "g", {})
    assert caught.value.reason == (
        "'gone' is left out: sink plugin gone of zz-gone 1.0: ModuleNotFoundError: No module named 'zz_nowhere'"
    )


def test_a_misdeclared_plugin_is_reported(site: Site):
    """What the contract refuses in a class is the reason of its fault."""
    source = GOOD.format(kind="pager").replace("(self, batch)", "(self)").replace("len(batch)", "0")
    site.install("zz-pager", "pager = zz_pager:Sink", source)
    assert Registry.load().faults == (Fault("pager", "zz-pager 1.0", "Sink.deliver takes no argument 'batch'"),)


def test_an_entry_point_is_named_like_its_kind(site: Site):
    """Another name would hide from the operator which plugin a missing kind belongs to."""
    site.install("zz-pager", "beeper = zz_pager:Sink", GOOD.format(kind="pager"))
    registry = Registry.load()
    assert registry.get("pager") is None
    assert [str(fault) for fault in registry.faults] == [
        "sink plugin beeper of zz-pager 1.0: Sink.kind is 'pager'; its entry point has to have the same name"
    ]


@pytest.mark.parametrize("name", ["inbox", "beeper"])
def test_a_built_in_kind_cannot_be_taken_over(site: Site, name: str):
    """A plugin that claims a built-in kind, in its entry point (then it is not imported) or its class, is left out."""
    site.install("zz-thief", f"{name} = zz_thief:Sink", GOOD.format(kind="inbox"))
    registry = Registry.load()
    assert registry.kinds() == BUILT_IN
    assert registry.get("inbox").__module__ == "sinks.inbox"
    assert [fault.entry_point for fault in registry.faults] == [name]
    assert ("zz_thief" in sys.modules) == (name == "beeper")


def test_two_plugins_of_one_kind_are_both_left_out(site: Site):
    """With two claims to a kind neither gets its deliveries: the order of installation must not choose a receiver."""
    site.good("zz-pager", "pager")
    site.good("aa-pager", "pager")
    registry = Registry.load()
    assert registry.kinds() == BUILT_IN
    reason = "kind 'pager' is claimed by aa-pager 1.0 and zz-pager 1.0; none of them is taken"
    assert registry.faults == (Fault("pager", "aa-pager 1.0", reason), Fault("pager", "zz-pager 1.0", reason))


def test_one_class_found_twice_is_one_kind(site: Site):
    """Two packages that point at the same class agree."""
    site.good("zz-pager", "pager")
    site.install("zz-alias", "pager = zz_pager:Sink")
    registry = Registry.load()
    assert (registry.get("pager") is not None, registry.faults) == (True, ())


def test_a_package_with_an_unreadable_list_is_reported(site: Site):
    """Metadata that cannot be read hides no other package's plugins."""
    site.install("zz-broken", "a line without its sign")
    site.good("zz-good", "good")
    with pytest.raises(TypeError, match=r"."):
        importlib.metadata.entry_points(group="sense_worker.sinks")
    registry = Registry.load()
    assert registry.get("good") is not None
    (fault,) = registry.faults
    assert (fault.entry_point, fault.package) == ("", "zz-broken 1.0")
    assert fault.reason.startswith("its entry points are unreadable: TypeError: ")


@pytest.mark.case("C62")
def test_a_fault_is_one_line(site: Site):
    """What a plugin says while it breaks cannot forge a line of a log."""
    site.install("zz-odd", "odd = zz_odd:Sink", "raise OSError('\\x1b[2J\\u2028 odd')")
    (fault,) = Registry.load().faults
    assert str(fault) == "sink plugin odd of zz-odd 1.0: OSError: \\x1b[2J\\u2028 odd"


def test_an_exception_that_cannot_be_told_is_named(site: Site):
    """An exception whose text raises is reported by its kind."""
    site.install(
        "zz-mute",
        "mute = zz_mute:Sink",
        """
        class Mute(Exception):
            def __str__(self):
                raise ValueError

        raise Mute
        """,
    )
    (fault,) = Registry.load().faults
    assert fault.reason == "Mute"


class Hanging(SinkBase):
    """Waits for what never comes."""

    kind = "hanging"
    built: ClassVar[int] = 0

    def __init__(self, name, options):
        type(self).built += 1
        threading.Event().wait()

    def deliver(self, batch):
        raise NotImplementedError(batch)


@pytest.mark.case("C52")
def test_a_plugin_that_hangs_when_built_holds_nobody_up(monkeypatch: pytest.MonkeyPatch):
    """It is waited for once, and then refused at once."""
    monkeypatch.setattr(guarded, "BUILD_LIMIT_S", 0.05)
    registry = Registry()
    registry.register(Hanging)
    for _ in range(3):
        with pytest.raises(UsageError, match=r"^sink kind hanging: did not come back "):
            registry.build("hanging", "h", {})
    assert str(registry.traits("hanging", {})).startswith("sink kind hanging: did not come back ")
    assert Hanging.built == 1


@pytest.mark.case("C52")
def test_a_plugin_that_ends_its_process_when_built_is_left_alone(tmp_path: Path):
    """Three processes of a host may die of it; the other sinks of all of them are built."""

    class Ending(Hanging):
        kind = "ending"

        def __init__(self, name, options):
            os._exit(4)

    registry = Registry(mark=Marks(tmp_path).mark)
    registry.register(Ending)
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                registry.build("ending", "e", {})
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
    with pytest.raises(UsageError, match=r"^sink kind ending: its process ended 3 times while it was built"):
        registry.build("ending", "e", {})
    assert registry.build("memory", "m", {}).kind == "memory"
