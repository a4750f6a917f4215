"""Sinks are opened once in a process, and one that could not be opened is tried again."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, ClassVar

import pytest

from runtime_core.errors import UsageError
from sense_worker import open_sinks, opening
from sense_worker.drain import Drain, Work
from sense_worker.home import OPENING_FOLDER
from sense_worker.open_sinks import OpenSink
from sense_worker.opening import Marks
from sense_worker.settings import Settings
from sense_worker.storage.rows import Rows as Statements
from sense_worker.wiring import build_ports
from sinks.protocol import Delivered, SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.sense_worker.test_drain import Bell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database


class Door(SinkBase):
    """Opens when it is told to."""

    kind: ClassVar[str] = "door"
    fault: ClassVar[BaseException | None] = None
    opened: ClassVar[int] = 0
    closed: ClassVar[int] = 0
    calls: ClassVar[list[str]] = []
    way: ClassVar[threading.Event] = threading.Event()
    """`open` and `close` wait for it."""

    def close(self):
        self.way.wait()
        type(self).closed += 1
        self.calls.append("close")

    def open(self):
        type(self).opened += 1
        self.calls.append("open")
        self.way.wait()
        if self.fault is not None:
            raise self.fault

    def deliver(self, batch):
        raise NotImplementedError(batch)


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """Tenant t-red with the sink `door`."""
    Door.fault, Door.opened, Door.closed = None, 0, 0
    Door.calls.clear()
    Door.way.set()
    registry = Registry()
    registry.register(Door)
    bench = IntakeBench(tmp_path, database, registry)
    bench.rows.sink("door", "door", audience="principal:ana")
    yield bench
    Door.way.set()
    bench.close()


def look(bench: IntakeBench) -> OpenSink | str | None:
    """Ask for the sink once."""
    with bench.database.read() as connection:
        authority = bench.ports.authorities.current(connection, ["t-red"])["t-red"]
        return bench.ports.sinks.get(Statements(connection, bench.database.kind), authority, "door")


def test_a_sink_is_opened_once_whatever_else_changes(bench):
    """Another version of the authority with the same row keeps the sink."""
    first = look(bench)
    bench.rows.principal("ben")

    assert look(bench) is first
    assert Door.opened == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ConnectionError("https://secret@host"), "sink cannot be opened: ConnectionError, at "),
        (UsageError("options.path", "is not there"), "sink cannot be opened: options.path: is not there"),
        (SystemExit(3), "sink cannot be opened: SystemExit, at "),
    ],
)
def test_a_sink_that_could_not_be_opened_is_tried_again_later(bench, monkeypatch, fault, said):
    """It says why, without what a plugin's own error may hold; it is not tried at every event, and opens in the end."""
    Door.fault = fault
    assert str(look(bench)).startswith(said)
    assert "secret" not in str(look(bench))
    assert Door.opened == 1
    Door.fault = None
    assert isinstance(look(bench), str)

    monkeypatch.setattr(open_sinks, "REOPEN_S", 0.0)

    assert isinstance(look(bench), OpenSink)


def change_the_row(bench: IntakeBench) -> None:
    """Write the sink's row anew: sealed again, it is another one."""
    with bench.database.write() as connection:
        statements = Statements(connection, bench.database.kind)
        statements.execute("UPDATE sense_sink SET options = ?", (bench.vault.seal(b"{}"),))
        statements.execute("UPDATE sense_tenant SET authority_version = authority_version + 1")


def test_a_replaced_sink_is_closed_when_its_last_user_is_done(bench):
    """Two hand-overs hold it while its row changes: it stays open until both are done, then it is closed, once."""
    first, second = look(bench), look(bench)
    change_the_row(bench)

    assert look(bench) is not first
    assert (Door.opened, Door.closed) == (2, 0)
    del first
    assert Door.closed == 0
    del second
    assert Door.closed == 1


def test_a_sink_that_nobody_uses_is_closed_as_soon_as_it_is_replaced_or_let_go(bench):
    """Replaced, removed, or at the end of the process."""
    look(bench)
    change_the_row(bench)
    look(bench)
    order = list(Door.calls)
    bench.ports.sinks.close()

    assert (order, Door.calls[3:]) == (["open", "close", "open"], ["close"])


def test_a_child_does_not_close_what_its_parent_opened(bench):
    """After a fork the child forgets the parent's sinks: to close them would end what both share (C56)."""
    look(bench)
    pid = os.fork()
    if pid == 0:
        bench.ports.sinks.close()
        os._exit(Door.closed)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class Good(SinkBase):
    """Takes everything, when a drain hands it over."""

    kind: ClassVar[str] = "good"

    def deliver(self, batch):
        return [Delivered()] * len(batch)


class Broken(SinkBase):
    """A plugin that raises when it is built, with a secret in its words, unless it works."""

    kind: ClassVar[str] = "broken"
    works: ClassVar[bool] = False

    def __init__(self, name, options):
        if not self.works:
            raise OSError("no licence for hunter2")
        super().__init__(name, options)

    def deliver(self, batch):
        return [Delivered()] * len(batch)


@pytest.mark.case("C52")
def test_what_is_meant_for_a_plugin_that_raises_when_built_is_held(tmp_path, database, monkeypatch):
    """What came before it broke and what came after wait with the reason; other sinks work; mended, it gets them."""
    registry = Registry()
    for kind in (Broken, Good):
        registry.register(kind)
    bench = IntakeBench(tmp_path, database, registry)
    for name in ("broken", "good"):
        bench.rows.sink(name, name, audience="principal:ana")
        bench.rows.route("ana", sink=name)
    bench.rows.grant("ana")
    states = "SELECT lane, state, reason, count(*) FROM sense_delivery GROUP BY lane, state, reason ORDER BY lane"

    def drained(lane: str) -> None:
        Drain(bench.ports).run(f"t-red/{lane}", Bell(), 0.0)

    def turned(*, works: bool) -> None:
        monkeypatch.setattr(Broken, "works", works)
        bench.ports.sinks.close()
        bench.rows.principal(f"works-{works}")  # whatever moves the authority version

    monkeypatch.setattr(Broken, "works", True)
    bench.record(bench.entry())
    assert bench.query(states)[0] == ("t-red/broken", "pending", None, 1)
    turned(works=False)
    bench.record(bench.entry())
    drained("broken")
    drained("good")
    broken, good = bench.query(states)
    assert (good[:2], good[3]) == (("t-red/good", "delivered"), 2)
    fault = str(registry.fault("broken", {}))  # what `sink list` tells beside it
    assert fault.startswith("sink kind broken: raised OSError while it was built, at ")
    assert broken == ("t-red/broken", "held", f"sink cannot be opened: {fault}", 2)
    assert "hunter2" not in fault

    turned(works=True)
    with bench.database.write() as connection:
        assert bench.ports.ledger.release_lane(connection, "t-red/broken", 1) == 2
    drained("broken")
    assert [row[1] for row in bench.query(states)] == ["delivered", "delivered"]
    bench.close()


@pytest.mark.case("C52")
def test_a_sink_that_hangs_while_it_opens_holds_nobody_up(bench, monkeypatch):
    """Whoever asks goes on at once; after a while it counts as one that fails, and it may come back."""
    monkeypatch.setattr(open_sinks, "OPENING_S", 0.01)
    Door.way.clear()
    assert (look(bench), look(bench)) == (None, None)
    monkeypatch.setattr(opening, "OPEN_LIMIT_S", 0.0)
    assert look(bench) == "sink cannot be opened: open did not return within 10 s"
    monkeypatch.setattr(open_sinks, "REOPEN_S", 0.0)
    assert isinstance(look(bench), str)
    assert Door.opened == 1

    Door.way.set()
    bench.ports.sinks.wait("t-red", "door")

    assert isinstance(look(bench), OpenSink)


@pytest.mark.case("C52")
def test_a_drain_waits_for_a_sink_that_opens_slowly_outside_of_its_transaction(bench, monkeypatch):
    """Meanwhile others write; the drain that asked first claims when it is open."""
    monkeypatch.setattr(open_sinks, "OPENING_WAIT_S", 60.0)
    bench.granted(sink="door")
    bench.record(bench.entry())
    Door.way.clear()
    claimed = []
    drain = threading.Thread(target=lambda: claimed.append(Drain(bench.ports).claim("t-red/door")))
    drain.start()
    while not Door.opened:
        threading.Event().wait(0.001)
    bench.rows.principal("ben")  # raises where the drain's transaction were open until the sink is
    Door.way.set()
    drain.join()
    assert isinstance(claimed[0], Work)


@pytest.mark.case("C52")
def test_a_sink_whose_opening_ends_its_process_is_left_alone(bench):
    """Three processes of a host may die of it; then its deliveries are held, until a worker starts or time passes."""
    Door.fault = None
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            setattr(Door, "open", lambda _: os._exit(3))  # noqa: B010 - it is a method to mypy
            look(bench)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert look(bench) == "sink cannot be opened: its process ended 3 times while it was opened"
    assert Door.opened == 0

    Marks(bench.settings.home / OPENING_FOLDER).forget()
    bench.ports.sinks.close()

    assert isinstance(look(bench), OpenSink)
    assert [*(bench.settings.home / OPENING_FOLDER).iterdir()] == []


def test_a_sink_that_does_not_close_is_left_behind(bench, monkeypatch):
    """Neither a stop nor the next sink in its place waits for it."""
    monkeypatch.setattr(opening, "CLOSE_LIMIT_S", 0.01)
    look(bench)
    Door.way.clear()
    bench.ports.sinks.close()
    Door.way.set()
    assert isinstance(look(bench), OpenSink)


def test_a_reader_opens_no_sink_that_a_drain_serves(bench):
    """What is not local is none of its business: it rings for it."""
    bench.granted(sink="door")
    bench.record(bench.entry())
    assert Door.opened == 0


HOOK = {"url": "http://127.0.0.1:9/in?key=hunter2", "secret": "whsec_" + "A" * 32}
CLOSED = (
    "sink cannot be opened: options.url: its address is internal; the operator may name its network in "
    "SENSE_SINK_NETWORKS (such as SENSE_SINK_NETWORKS=127.0.0.0/8)"
)


def hooked(home: Path, database: Database, **env: str) -> IntakeBench:
    """Tenant t-red with a webhook on this machine and ana's route to it."""
    bench = IntakeBench(home, database, **env)
    bench.rows.sink("hook", "webhook", HOOK, audience="principal:ana")
    bench.granted(sink="hook")
    return bench


def reasons(bench: IntakeBench) -> list[tuple[str, int]]:
    """Return why deliveries are held, and how many."""
    return bench.query("SELECT reason, count(*) FROM sense_delivery WHERE state = 'held' GROUP BY reason ORDER BY 1")


@pytest.mark.case("C53")
def test_what_only_this_process_may_not_open_is_held_with_the_cause(tmp_path, database, capsys):
    """Its settings refuse the options: the rows, old ones too, and one warning say so, and no value of an option."""
    bench = hooked(tmp_path, database)
    bench.record(bench.entry())
    with bench.database.write() as connection:  # as the release before told it
        Statements(connection, bench.database.kind).execute("UPDATE sense_delivery SET reason = 'sink missing'")
    bench.record(*(bench.entry() for _ in range(3)))
    other = build_ports(bench.settings)  # another process of this host

    for ports in (bench.ports, other, other):
        Drain(ports).run("t-red/hook", Bell(), 0.0)

    assert reasons(bench) == [(CLOSED, 4)]
    told = capsys.readouterr().err
    assert told.count("sink held") == 1
    assert CLOSED in told
    assert "hunter2" not in told
    other.close()
    bench.close()


def test_a_process_whose_settings_allow_it_takes_what_another_held(tmp_path, database):
    """Started again with the network named, it opens the sink and makes what was held due."""
    closed = hooked(tmp_path, database)
    closed.record(closed.entry())
    assert reasons(closed) == [(CLOSED, 1)]
    keys = {"SENSE_SECRET_KEYS": closed.settings.secret_keys.get_secret_value()}
    env = {"HCP_HOME": str(tmp_path), "SENSE_DATABASE_URL": database.url.render_as_string(hide_password=False), **keys}
    ports = build_ports(Settings.load({**env, "SENSE_SINK_NETWORKS": "127.0.0.0/8"}))

    assert isinstance(Drain(ports).claim("t-red/hook"), Work)
    assert reasons(closed) == []
    ports.close()
    closed.close()


def test_a_cause_is_warned_of_once_a_host_until_a_worker_starts(tmp_path):
    """Two processes ask: the first is told yes; another name, and a start of a worker, are asked anew."""
    one, two = Marks(tmp_path / "opening"), Marks(tmp_path / "opening")

    assert [one.first("held", "a"), two.first("held", "a"), two.first("held", "b")] == [True, False, True]
    one.forget()
    assert two.first("held", "a")
