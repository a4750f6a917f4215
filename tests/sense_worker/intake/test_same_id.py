"""One message id in two tenants: neither learns of the other, whoever comes first (C59)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import NotFound
from sense_worker.operator import Operator
from tests.intake_bench import IntakeBench
from tests.provision import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """Tenants t-red and t-blue, each with an ana who is granted and routed to the inbox."""
    bench = IntakeBench(tmp_path, database)
    blue = Rows(bench.database, bench.vault, "t-blue")
    blue.principal("ana")
    blue.pack()
    bench.activate("a-blue", "ana", blue)
    for rows in (bench.rows, blue):
        rows.grant("ana")
        rows.route("ana")
    yield bench
    bench.close()


@pytest.mark.case("C59")
@pytest.mark.parametrize("apart", [True, False], ids=["one after the other", "in one batch"])
@pytest.mark.parametrize("order", [("t-red", "t-blue"), ("t-blue", "t-red")], ids=" first, then ".join)
def test_both_tenants_events_of_one_id_arrive_in_either_order(bench, order, apart):
    """Each has its own event, delivery and item; a copy is a repeat, another body a conflict, in its own alone."""
    who = {"t-red": "a-ana", "t-blue": "a-blue"}

    def said(tenant: str, words: str):
        return bench.entry(message_id="e-1", data={"from": words}, activation=who[tenant], tenant=tenant)

    first = {tenant: said(tenant, tenant) for tenant in order}
    copy = bench.entry(message_id="e-1", body=first["t-red"].fields[b"b"])
    batches = [[first[tenant]] for tenant in order] if apart else [[first[tenant] for tenant in order]]
    counts = [bench.record(*batch) for batch in batches]

    assert sum(count.pop("accepted") for count in counts) == 2
    assert [count for count in counts if count] == []
    items = bench.query("SELECT tenant, body FROM inbox_item ORDER BY tenant")
    assert [(tenant, json.loads(bytes(body))["data"]["from"]) for tenant, body in items] == [
        ("t-blue", "t-blue"),
        ("t-red", "t-red"),
    ]
    assert bench.record(copy, said("t-blue", "another")) == {"repeat": 1, "conflict": 1}
    assert bench.query("SELECT tenant, repeats FROM sense_event ORDER BY tenant") == [("t-blue", 0), ("t-red", 1)]
    assert bench.query("SELECT tenant, word FROM sense_dead_entry") == [("t-blue", "conflict")]


@pytest.mark.case("C59")
def test_what_a_tenant_is_told_is_of_its_own_events(bench):
    """An operator of each sees its own event of the id, and of the other's hears what it hears of one nowhere."""
    bench.record(
        bench.entry(message_id="e-1", data={"n": 1}),
        bench.entry(message_id="e-1", data={"n": 2}, activation="a-blue", tenant="t-blue"),
    )
    events = dict(bench.query("SELECT tenant, id FROM sense_event"))
    names = {tenant: bytes(key).hex() for tenant, key in events.items()}
    other = {"t-red": "t-blue", "t-blue": "t-red"}
    for tenant, own in names.items():
        made = Operator.initialize(bench.settings, tenant=tenant)
        with Operator.open(bench.settings, session_file=bench.settings.home / made.session_file) as operator:
            seen = {view.event_id for view in operator.list_deliveries()}
            told = []
            for name in (names[other[tenant]], "0" * 32):
                with pytest.raises(NotFound) as nothing:
                    operator.explain(name)
                told.append(str(nothing.value).replace(name, "ID"))

        assert seen == {own}
        assert told[0] == told[1]
