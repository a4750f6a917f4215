"""webhook: signed HTTP requests to a receiver, as Standard Webhooks or CloudEvents, many in flight."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from runtime_core.egress import Egress, NotReached
from runtime_core.errors import UsageError
from runtime_core.name_lookup import checked_addresses
from sinks.address import place
from sinks.loop_thread import shared_loop
from sinks.optional import Renewed
from sinks.protocol import NETWORKS_SETTING, NOTHING_ALLOWED, Rejected, SinkBase
from sinks.webhook_message import NoEvent, message
from sinks.webhook_options import IN_FLIGHT_LIMIT, TOTAL_LIMIT_S, WebhookOptions, new_secret, renewed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel

    from sinks.protocol import Delivery, Host, Outcome
    from sinks.webhook_client import Client
    from sinks.webhook_message import Message

BATCH = 64
"""Deliveries of one call at most: they are claimed in one transaction and settled in another."""
MARGIN_S = 2.0
"""What a call may take beside its exchanges."""
CLOSE_S = 0.5
_WAY_OUT = "pip install 'sense-worker[webhook]'"
_PLAIN = f"plain http goes into the networks of {NETWORKS_SETTING} only"


class Webhook(SinkBase):
    """At least once: a receiver tells repeats by `webhook-id`, which is the delivery's id.

    One call more may be out than are needed to have `in_flight` requests: they go on while a call is settled. Its
    requests wait for a free slot, one total time at most, and then have their own.
    """

    kind: ClassVar[str] = "webhook"
    Options: ClassVar[type[BaseModel]] = WebhookOptions
    secret_options: ClassVar[tuple[str, ...]] = ("secret", "previous")
    deadline_s: ClassVar[float] = 2 * TOTAL_LIMIT_S + MARGIN_S
    concurrency: ClassVar[int] = -(-IN_FLIGHT_LIMIT // BATCH) + 1
    batch_size: ClassVar[int] = BATCH

    def __init__(self, name: str, options: WebhookOptions) -> None:
        super().__init__(name, options)
        self._options = options
        self._address = options.url.get_secret_value()
        self._parts = urlsplit(self._address)
        self._egress = self._made_egress(NOTHING_ALLOWED)
        self._client: Client | None = None
        calls = -(-options.in_flight // BATCH)
        # Beside the requests in flight no more than as many wait, so that none waits longer than one takes.
        self.narrow(
            deadline_s=2 * options.total_s + MARGIN_S,
            concurrency=calls + 1,
            batch_size=options.in_flight // calls,
        )

    @classmethod
    def renew(cls, options: Mapping[str, object], now: int, until: int) -> Renewed:
        """Return options with a new secret; the one before signs too until the overlap ends (C51)."""
        secret = new_secret()
        return Renewed(renewed(dict(options), secret, now, until), secret)

    def admit(self, host: Host) -> None:
        """Refuse an address that is internal, or plain http, where the host names no network for it (C47)."""
        self._egress = self._made_egress(host)
        try:
            self._egress.check_host(self._parts.hostname or "")
        except NotReached as reason:
            raise _refused(reason) from None
        if self._parts.scheme == "http" and not host.networks:
            raise _refused(NotReached(_PLAIN))

    def probe(self) -> None:
        """Look the name up, once; one that leads to an internal address is refused, one that has none may get one."""
        port = self._parts.port or {"http": 80}.get(self._parts.scheme, 443)
        look = checked_addresses(self._egress, self._parts.hostname or "", port)
        try:
            with contextlib.suppress(OSError):  # a time that is over is one
                shared_loop().run(look, self._options.connect_s)
        except NotReached as reason:
            raise _refused(reason) from None

    def open(self) -> None:
        """Make the client; it connects at the first delivery."""
        self._client = self._opened()

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Send all of the batch as slots are free."""
        if self._client is None:
            raise RuntimeError("not open")
        now = time.time()
        keys = self._options.signing(now)
        made = [self._message(delivery, keys, int(now)) for delivery in batch]
        sent = [one for one in made if not isinstance(one, Rejected)]
        answers = iter(shared_loop().run(self._client.send(sent), self.deadline_s) if sent else [])
        return [one if isinstance(one, Rejected) else next(answers) for one in made]

    def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            shared_loop().release(client, client.close(), CLOSE_S)

    def _message(self, delivery: Delivery, keys: Sequence[bytes], second: int) -> Message | Rejected:
        try:
            return message(delivery, self._options, keys, second)
        except NoEvent:
            return Rejected("the body is no event")

    def _made_egress(self, host: Host) -> Egress:
        return Egress(host.networks, NETWORKS_SETTING, _PLAIN if self._parts.scheme == "http" else None)

    def _opened(self) -> Client:
        """Return a new client on the loop of this process; raises UsageError without the extra."""
        try:
            from sinks.webhook_client import Client, Limits
        except ModuleNotFoundError as missing:
            raise UsageError("sink kind webhook", f"needs {missing.name}", _WAY_OUT) from None
        limits = Limits(self._options.in_flight, self._options.total_s, self._options.connect_s)
        return shared_loop().make(lambda: Client(self._address, place(self._parts), self._egress, limits))


def _refused(reason: NotReached) -> UsageError:
    return UsageError("options.url", str(reason), f"such as {NETWORKS_SETTING}={reason.example}")
