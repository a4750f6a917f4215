"""Authority snapshots: filled on demand, shared by threads, flat in memory; and the tables of grants in them."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from runtime_core import pipeline
from runtime_core.grants import Grant, GrantTable
from runtime_core.identity import Activation, Credential, Principal, Route, Session, Sink
from runtime_core.memory import MemoryAuthority
from runtime_core.pipeline import Facts, decide
from tests.runtime_core.test_pipeline import revision

if TYPE_CHECKING:
    from runtime_core.authority import Authority

NOW = 1_780_000_000_000_000
TENANT = "acme"


def granted(who: str, **values: object) -> Grant:
    """Return a grant of sense.enable for every key of the pack, with other values where given."""
    facts = {"id": f"g-{who}", "tenant": TENANT, "principal": who, "capability": "sense.enable", "pack_id": "mail"}
    return Grant(**{"keys": None, "project": None, "expires_at": None, **facts, **values})


@pytest.fixture
def rows() -> MemoryAuthority:
    """Twenty principals with an activation each; those of an even number hold the grant."""
    rows = MemoryAuthority()
    rows.put_revision(revision())
    rows.put_sink(Sink(TENANT, "inbox", "inbox", "tenant", None, partitioned=True, workspace=False, held=None))
    for number in range(20):
        who = f"p{number}"
        rows.put_principal(Principal(TENANT, who, "human", operator=False, disabled=False))
        rows.put_session(Session(f"s{number}", TENANT, who, NOW * 2, revoked=False))
        rows.put_activation(Activation(f"a{number}", TENANT, f"s{number}", "mail", None, None, False, Credential(b"x")))
        if number % 2 == 0:
            rows.put_grant(granted(who))
    return rows


def allowed(authority: Authority, number: int) -> bool:
    """Decide on an event of a principal for its own route."""
    facts = Facts(b"e" * 16, TENANT, "mail", "personal", f"a{number}", f"p{number}")
    route = Route(f"r{number}", TENANT, f"p{number}", "mail", "*", "inbox", None, None)
    return decide(authority, facts, route, NOW).refused is None


@pytest.mark.parametrize("row", ["activation", "session", "principal", "grants", "revision", "sink"])
def test_a_thread_never_sees_a_row_that_another_is_loading(rows, monkeypatch, row):
    """While one thread waits for a row, another decides rightly on the same snapshot; so does the first then."""
    load, loading, decided = getattr(rows, row), threading.Event(), threading.Event()

    def slow(*at: str) -> object:
        if not loading.is_set():
            loading.set()
            assert decided.wait(10)
        return load(*at)

    monkeypatch.setattr(rows, row, slow)
    authority = rows.snapshot(TENANT)
    with ThreadPoolExecutor(1) as other:
        first = other.submit(allowed, authority, 2)
        try:
            assert loading.wait(10)
            assert allowed(authority, 2)
        finally:
            decided.set()
        assert first.result()


def test_threads_that_share_a_snapshot_each_decide_rightly(rows, monkeypatch):
    """Eight threads fill one snapshot at once, while kept decisions are thrown away all the time: none errs."""
    monkeypatch.setattr(pipeline, "DECISIONS_KEPT", 3)
    authority = rows.snapshot(TENANT)
    together = threading.Barrier(8)

    def all_of_them(_: int) -> list[bool]:
        together.wait()
        return [allowed(authority, number) for number in range(20)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(all_of_them, range(8)))
    finally:
        sys.setswitchinterval(interval)

    assert answers == [[number % 2 == 0 for number in range(20)]] * 8


def test_each_row_is_loaded_once_and_an_unknown_id_is_not_kept(rows, monkeypatch):
    """What a snapshot has it does not ask for again; an id that a stranger made up leaves nothing behind."""
    asked = []
    for name in ("activation", "session", "grants"):
        load = getattr(rows, name)
        monkeypatch.setattr(rows, name, lambda *at, load=load, name=name: (asked.append((name, at[1])), load(*at))[1])
    authority = rows.snapshot(TENANT)

    for _ in range(3):
        assert authority.activation("a2") is not None
        assert authority.grant("p2", "sense.enable", "mail", "personal", None, NOW) is not None
        assert authority.activation("made-up") is authority.session("made-up") is None

    assert asked.count(("activation", "a2")) == asked.count(("session", "s2")) == asked.count(("grants", "p2")) == 1
    assert asked.count(("activation", "made-up")) == asked.count(("session", "made-up")) == 3


@pytest.mark.spec("9.4.4")
def test_the_most_specific_place_answers_and_in_it_a_grant_without_a_limit():
    """Pack and key before pack before key; of several in one place the one that never ends, so that it may be kept."""
    ending = granted("ana", id="ending", keys=("personal",), expires_at=NOW + 1)
    lasting = granted("ana", id="lasting", keys=("personal",))
    wide, everywhere = granted("ana", id="wide"), granted("ana", id="everywhere", pack_id="*")
    table = GrantTable([everywhere, wide, ending, lasting])

    def found(*grants: Grant, now: int = NOW) -> str | None:
        answer = GrantTable(grants).find("sense.enable", "mail", "personal", None, now)
        return None if answer is None else answer.id

    assert table.find("sense.enable", "mail", "personal", None, NOW) == lasting
    assert found(everywhere, wide, ending) == "ending"
    assert found(everywhere, wide, ending, now=NOW + 1) == "wide"
    assert found(everywhere) == "everywhere"
    assert found(ending, now=NOW + 1) is None
