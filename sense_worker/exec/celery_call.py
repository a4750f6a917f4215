"""A request by way of Celery: the same sealed fields as JSON, for hosts whose web app runs Celery already (DESIGN §8).

Needs no Celery itself: the host sends it with an app of its own.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.errors import UsageError
from sense_worker.exec.asking import HeldSession, Request, ask, heard, too_late
from sense_worker.exec.wire import Place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from runtime_core.envelope import ResultEnvelope
    from sense_worker.exec.asking import ExecOptions

CALL_TASK = "sense_worker.exec"
CALL_QUEUE = "sense.call"
_TEXTS = ("v", "c", "i", "t", "s")


class CeleryCall(NamedTuple):
    """A request that any Celery app on the worker's broker can send, and whose answer only its session can open.

    app.send_task(call.task, kwargs=call.kwargs, queue=call.queue).get(timeout=…) is what `opened` takes.
    """

    request: Request

    @property
    def task(self) -> str:
        """The name of the task."""
        return CALL_TASK

    @property
    def queue(self) -> str:
        """The queue of the worker for commands."""
        return CALL_QUEUE

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments of the task, as JSON can hold them; nothing in them is in clear but who asks, and when."""
        entry = {name: _text(value) for name, value in self.request.fields.items() if name != "b"}
        body = base64.b64encode(bytes(self.request.fields["b"])).decode()  # type: ignore[arg-type]
        return {
            "tenant": self.request.held.tenant,
            "entry": entry | {"b": body},
            "timeout_s": self.request.timeout_s,
        }

    def opened(self, answer: str | None) -> ResultEnvelope:
        """Return the result envelope of the task's answer.

        Raises ExecTimeout where none came in time, also since the session is not known there; ExecRefused for a request
        that failed its door, or an answer to another one.
        """
        if answer is None:
            raise too_late(self.request)
        return heard(self.request, _bytes("answer", answer))


def seal_for_celery(
    session: HeldSession,
    pack_id: str,
    verb_key: str,
    args: dict[str, Any] | None = None,
    **options: Unpack[ExecOptions],
) -> CeleryCall:
    """Return the request to run one command, ready for Celery; options as of `RuntimeClient.submit`.

    Raises UsageError for options that are none, and for args too large.
    """
    return CeleryCall(ask(session, pack_id, verb_key, args, **options))


def celery_call(session: HeldSession, kwargs: Mapping[str, Any]) -> CeleryCall:
    """Return the call whose arguments these are, to open its answer in another process than the one that sealed it.

    Raises UsageError for arguments of no such call.
    """
    entry, timeout_s = kwargs.get("entry"), kwargs.get("timeout_s")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in (*_TEXTS, "b")):
        raise UsageError("entry", f"must hold {', '.join(_TEXTS)} and b as text", "see docs/wire.md")
    if type(kwargs.get("tenant")) is not str or type(timeout_s) not in {int, float}:
        raise UsageError("tenant, timeout_s", "must be text and seconds", "see docs/wire.md")
    fields = {name: str(value) for name, value in entry.items()} | {"b": _bytes("b", entry["b"])}
    place = Place(entry["c"], entry["i"], entry["t"])
    return CeleryCall(Request(session, fields, place, entry["i"], "", "", float(timeout_s or 0)))


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("ascii")


def _bytes(place: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(place, "is no base64", "see docs/wire.md") from None
