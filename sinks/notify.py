"""The `notify` sink: messages to people through Apprise, to services that the host's operator has enabled.

At least once. Several addresses make one delivery: it is delivered once all have taken it. Which have is remembered in
this process, so that a retry does not reach them again; after a restart, or in another worker, it does. A sink for each
address has a ledger row for each, and nothing to remember.
"""

from __future__ import annotations

import os
import re
import threading
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from runtime_core.egress import Egress, NotReached
from runtime_core.errors import UsageError
from sinks.extras import EXTRAS
from sinks.notify_process import NoAnswer, NotifyProcess
from sinks.notify_text import checked, filled, one_line, paragraphs
from sinks.one_by_one import OneByOne
from sinks.protocol import NETWORKS_SETTING, NOTHING_ALLOWED, Delivered, Outcome, Rejected, Retry
from sinks.retry_after import retry_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.protocol import Delivery, Host

ADDRESSES = 20
ADDRESS_LIMIT = 2048
TARGET_S = 10.0
"""Seconds one address may take; then Apprise's process is ended, and started again for the next delivery."""
CALL_S = 26.0
"""Seconds all addresses may take."""
REMEMBERED = 1_000
"""Deliveries of which it is remembered who has taken them."""

_SCHEMA = re.compile(r"([a-z][a-z0-9+.-]{0,31})://", re.ASCII)


class ServiceAddress(SecretStr):
    """An address of which only the service is shown: in the host's place a token may stand."""

    def _display(self) -> str:
        found = _SCHEMA.match(self.get_secret_value())
        return f"{found[0]}***" if found else "***"


def _is_address(address: ServiceAddress) -> ServiceAddress:
    text = address.get_secret_value()
    if len(text) > ADDRESS_LIMIT or not _SCHEMA.match(text) or not all("!" <= character <= "~" for character in text):
        raise ValueError(f"must be an Apprise address, service://…, in ASCII and of {ADDRESS_LIMIT} characters at most")
    return address


Template = Annotated[str, AfterValidator(checked)]


class NotifyOptions(BaseModel):
    """Where to, and in which words."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    urls: tuple[Annotated[ServiceAddress, AfterValidator(_is_address)], ...] = Field(min_length=1, max_length=ADDRESSES)
    """Addresses as Apprise writes them; secret as a whole."""
    title: Template = Field("{pack_id}: {ref} {subject}", max_length=1_000)
    body: Template = Field("{data}", max_length=10_000)


class _Result(NamedTuple):
    """What became of a message for one address; `why` is None where it was taken."""

    why: str | None
    never: bool = False
    after: float | None = None

    @property
    def done(self) -> bool:
        """Whether another try would change nothing."""
        return self.why is None or self.never


class Notify(OneByOne):
    """One delivery at a time; Apprise runs in a process of its own (`sinks.notify_child`)."""

    kind: ClassVar[str] = "notify"
    Options: ClassVar[type[BaseModel]] = NotifyOptions
    deadline_s: ClassVar[float] = 30.0

    def __init__(self, name: str, options: NotifyOptions) -> None:
        super().__init__(name, options)
        self._urls = tuple(url.get_secret_value() for url in options.urls)
        self._title = options.title
        self._body = options.body
        self._host: Host = NOTHING_ALLOWED
        self._process: NotifyProcess | None = None
        self._shown: list[str | None] = []
        self._turn = threading.Lock()
        self._done: dict[str, dict[int, _Result]] = {}

    def admit(self, host: Host) -> None:
        """Refuse a service that is not enabled, and an internal address where one is written out (C47)."""
        self._host = host
        egress = Egress(host.networks, NETWORKS_SETTING)
        for at, url in enumerate(self._urls):
            schema, place = _schema(url), f"options.urls.{at}"
            if schema not in host.services:
                way_out = f"the host's operator may name it in SENSE_NOTIFY_SERVICES={schema}"
                raise UsageError(place, f"the service {schema} is not enabled", way_out)
            try:
                egress.check_host(_literal_host(url))
            except NotReached as reason:
                raise UsageError(place, f"{schema} is not reached: {reason}") from None

    def probe(self) -> None:
        """Ask Apprise for what it takes each address; connects to nothing. Raises UsageError where it is none.

        Without Apprise there is nobody to ask; a worker may have it.
        """
        if EXTRAS["notify"].lack() is not None:
            return
        self.open()
        try:
            self._ready(time.monotonic() + CALL_S)
        except NoAnswer as reason:
            raise UsageError("sink kind notify", f"Apprise {reason}") from None
        finally:
            self.close()
        for at, shown in enumerate(self._shown):
            if shown is None:
                raise UsageError(f"options.urls.{at}", f"is no address of {_schema(self._urls[at])} to Apprise")

    def open(self) -> None:
        """Start Apprise's process, which is ready 2 s later; raises UsageError where Apprise is not installed."""
        if EXTRAS["notify"].lack() is not None:
            raise UsageError("sink kind notify", "needs Apprise", "pip install 'sense-worker[notify]'")
        self._start()

    def close(self) -> None:
        """End that process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def deliver_one(self, delivery: Delivery) -> Outcome:
        """Send one message to each address that is not done with it yet."""
        until = time.monotonic() + CALL_S
        try:
            title, body = one_line(filled(self._title, delivery)), paragraphs(filled(self._body, delivery))
        except ValueError as error:
            return Rejected(f"the event does not become a message: {error}")
        if not self._turn.acquire(timeout=CALL_S):
            return Retry("another delivery of this sink is still being sent")
        try:
            done = self._done.pop(delivery.id, {})
            results = [
                done.get(at) or self._send(at, {"title": title, "body": body}, until) for at in range(len(self._urls))
            ]
            return self._outcome(delivery.id, results)
        finally:
            self._turn.release()

    def _send(self, at: int, message: dict[str, str], until: float) -> _Result:
        """Send to one address. What hangs is ended with Apprise's process; the next address gets a new one."""
        if time.monotonic() >= until:
            return _Result(f"{self._name(at)} was not tried: the others took {CALL_S:g} s")
        try:
            process = self._ready(until)
            if self._shown[at] is None:
                return _Result(f"{self._name(at)} is no address of this service to Apprise")
            process.say({"at": at, **message})
            answer = process.answer(min(until, time.monotonic() + TARGET_S))
        except NoAnswer as reason:
            self.close()
            return _Result(f"{self._name(at)} {reason}")
        if answer["sent"]:
            return _Result(None)
        return _Result(f"{self._name(at)} {answer['why']}", answer["never"], retry_after(answer["after"], time.time()))

    def _outcome(self, delivery_id: str, results: Sequence[_Result]) -> Outcome:
        """Return what all results amount to; those that another try cannot change are kept for it."""
        whys = "; ".join(one.why for one in results if one.why is not None)
        if any(not one.done for one in results):
            self._done[delivery_id] = {at: one for at, one in enumerate(results) if one.done}
            if len(self._done) > REMEMBERED:
                self._done.pop(next(iter(self._done)))
            return Retry(whys, max((one.after for one in results if one.after is not None), default=None))
        if whys:
            return Rejected(whys)
        return Delivered(", ".join(self._name(at) for at in range(len(results))))

    def _name(self, at: int) -> str:
        """Return what may be shown of an address: its service, its host where that is known to be one, its place."""
        shown = (self._shown[at] if self._shown else None) or _schema(self._urls[at])
        return shown if len(self._urls) == 1 else f"{shown} (urls.{at})"

    def _start(self) -> NotifyProcess:
        self._process = NotifyProcess(self._urls, [str(network) for network in self._host.networks])
        self._shown = []
        return self._process

    def _ready(self, until: float) -> NotifyProcess:
        """Return Apprise's process, started where there is none of this worker's; raises NoAnswer."""
        process = self._process
        if process is None or process.pid != os.getpid():
            process = self._start()
        if not self._shown:
            self._shown = process.answer(until)["shown"]
        return process


def _schema(url: str) -> str:
    return url.partition("://")[0]


def _literal_host(url: str) -> str:
    """Return the host where it is an address or this machine; in other places a token may stand for it."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
        if host != "localhost" and not host.endswith(".localhost"):
            ip_address(host)
    except ValueError:
        return ""
    return host
