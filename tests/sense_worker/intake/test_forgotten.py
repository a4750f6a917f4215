"""A message id that is used again after its event was forgotten: the inbox still has the item of the first one."""

from __future__ import annotations

from sense_worker.schedule import DAY_MICROS


def test_an_id_used_again_after_retention_is_accepted(bench):
    """The event is new to the ledger and recorded with its batch; the item that is still there stays as it is."""
    bench.granted()
    bench.record(bench.entry(message_id="m-again", data={"n": 1}))
    with bench.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE sense_event SET accepted_at = accepted_at - {31 * DAY_MICROS}")
        assert bench.ports.ledger.forget(connection, "t-red", bench.ports.database.now(connection), 10) == 1

    assert bench.record(bench.entry(), bench.entry(message_id="m-again", data={"n": 2}), bench.entry()) == {
        "accepted": 3
    }

    assert bench.query("SELECT state, count(*) FROM sense_delivery GROUP BY state") == [("delivered", 3)]
    assert bench.query("SELECT count(*) FROM inbox_item") == [(3,)]
    assert b'"n": 1' in bytes(bench.query("SELECT body FROM inbox_item ORDER BY number")[0][0])
    assert bench.query("SELECT sum(unseen) FROM inbox_counter") == [(3,)]
