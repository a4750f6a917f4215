"""Every Invoker by every gate: nothing is minted and no adapter entered before the denial would have been produced."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import redis

from runtime_core.errors import AUDIT_UNAVAILABLE, COMPOSITE_LIMITS, EXEC_REFUSALS, INTERRUPTED, INVALID_ARGS
from sense_worker.storage.engine import Database
from tests.spec.invokers import FAULTS, INVOKERS, Fault, Stage, patched

if TYPE_CHECKING:
    from collections.abc import Iterator

CANNOT = {
    (invoker, INTERRUPTED): "it has no row, and so no lease that another process could have taken over"
    for invoker in INVOKERS
    if invoker != "queue"
}
"""What an Invoker cannot meet, and why."""
MATRIX = [(invoker, one) for invoker in INVOKERS for one in FAULTS if one.refusal is not INTERRUPTED]
"""All but the one that only the queue meets, which has a test of its own."""
ALLOWED = [
    (Fault(INTERRUPTED, "", "ana", "mail", "mail.read", {"text": "x"}), ["keyring", "mail.read"]),
    (Fault(INTERRUPTED, "", "ana", "mail", "mail.gated", {"confirm": True}), ["keyring", "mail.gated"]),
    (Fault(INTERRUPTED, "", "ana", "wide", "wide.half"), ["free.read"] * 20),
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory, sqlite_template, redis_server) -> Iterator[Stage]:
    """The world over SQLite and a real Redis; the tests change nothing in it but what they put back."""
    folder = tmp_path_factory.mktemp("stage")
    (folder / "home").mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, folder / "ledger-requests.db")
    database = Database(f"sqlite:///{shutil.copyfile(sqlite_template, folder / 'ledger.db')}")
    with redis.Redis.from_url(redis_server.url, protocol=2) as client, pytest.MonkeyPatch.context() as patch:
        made = Stage(folder / "home", database, client)
        patch.setattr("sense_worker.invoker.build_runtime", patched(made))
        yield made
        made.close()
    database.dispose()


@pytest.fixture(autouse=True)
def environment(stage, monkeypatch):
    """What a terminal has, and an audit that is there."""
    for name, value in stage.environment.items():
        monkeypatch.setenv(name, value)
    yield
    stage.away = False
    stage.keyring.on_mint = lambda: None


def lines(stage: Stage) -> int:
    """Return how many lines the audit has."""
    return len(stage.audited())


def test_every_refusal_is_met_by_every_invoker_or_cannot_be():
    """The table's refusals in its order, one each; what is left out is left out for a reason."""
    assert [one.refusal for one in FAULTS] == list(EXEC_REFUSALS)
    assert len(MATRIX) + len(CANNOT) + 1 == len(EXEC_REFUSALS) * len(INVOKERS)


@pytest.mark.spec("4.5.5")
@pytest.mark.spec("9.5.no-skip")
@pytest.mark.parametrize("invoker", ["queue", "python", "command line"])
@pytest.mark.parametrize(("one", "entered"), ALLOWED, ids=lambda one: getattr(one, "verb_key", ""))
def test_what_is_allowed_mints_and_runs(stage, capsys, invoker, one, entered):
    """The control: the recorders see what an Invoker lets through."""
    assert (stage.invoke(invoker, one, capsys), stage.log) == (None, entered)


@pytest.mark.spec("1.3.twin-face")
@pytest.mark.spec("4.5.5")
@pytest.mark.spec("9.5.no-skip")
@pytest.mark.parametrize(("invoker", "one"), MATRIX, ids=lambda one: one if isinstance(one, str) else one.text)
def test_a_denial_is_produced_before_anything_is_entered(stage, capsys, invoker, one):
    """The same text on every way; only the hub that refuses was asked, and the audit has the denial and no begin."""
    stage.away = one.refusal is AUDIT_UNAVAILABLE
    before = lines(stage)

    error = stage.invoke(invoker, one, capsys) or ""

    step = invoker == "composite step"
    late = step and one.at_its_turn
    told = one.text
    if one.refusal is COMPOSITE_LIMITS and step:
        told = COMPOSITE_LIMITS.text(f"flow.{FAULTS.index(one)}")
    assert stage.log == [*(["free.read"] if late else []), *one.entered]
    if late or one.refusal is INVALID_ARGS:
        assert error.startswith(told)
        assert error.endswith(f" (step 2 of 2: {one.verb_key})") == late
    else:
        assert error == told
    begun = [] if not late else ["exec.begin"]  # the composite's own
    new = stage.audited()[before:]
    assert [line["action"] for line in new if line["action"] == "exec.begin"] == begun
    assert stage.away or (new[-1]["ok"], new[-1]["reason"], new[-1]["principal"]) == (False, error, one.who)


@pytest.mark.spec("9.5.no-skip")
def test_a_write_that_another_process_took_is_not_begun(stage, capsys):
    """Where the lease went to another while the credential was minted, no adapter is entered and no line begun."""
    (one,) = (fault for fault in FAULTS if fault.refusal is INTERRUPTED)

    def take() -> None:
        stage.lapse()
        stage.claim()

    stage.keyring.on_mint = take
    before = lines(stage)
    stage.invoke("queue", one, capsys)

    assert stage.log == ["keyring"]
    assert [(line["action"], line["reason"]) for line in stage.audited()[before:]] == [("exec", one.text)]
