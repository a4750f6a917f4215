"""The slots of a webhook's client: what comes as the last one is being given back finds it free."""

from __future__ import annotations

import asyncio

import pytest

from runtime_core.egress import Egress
from sinks.protocol import Delivered
from sinks.webhook_client import Client, Limits
from sinks.webhook_message import Message


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_batch_that_follows_at_once_is_sent(monkeypatch, in_flight):
    """The next batch is handed in by who was woken by the last outcome, before the loop has turned."""

    async def outcome(_client, _message):
        await asyncio.sleep(0)
        return Delivered("204")

    async def batches():
        client = Client("http://127.0.0.1:9/x", "127.0.0.1:9", Egress((), "X"), Limits(in_flight, 1.0, 1.0))
        try:
            for _ in range(3):
                async with asyncio.timeout(5):
                    assert await client.send([Message({}, b"")] * in_flight) == [Delivered("204")] * in_flight
        finally:
            await client.close()

    monkeypatch.setattr(Client, "_outcome", outcome)
    asyncio.run(batches())
