"""What Apprise's process lets out, and what became of it: a guard on every socket, and notes on what went wrong.

Apprise answers True or False. Why it was False is seen where its plugins' libraries meet the network. Everything here
changes this process for good, which is why it is one of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import smtplib
import socket
import ssl
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.egress import NotReached
from sinks.http_status import passes, redirects, succeeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime_core.egress import Egress

ANSWER_LIMIT = 1_048_576
"""Bytes of an answer that are read and unpacked."""
_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_NAMED = {"ConnectTimeout": "is not reached in time", "ReadTimeout": "gave no answer in time"}


class Note(NamedTuple):
    """One thing that went wrong, in words that hold nothing of an address (C53)."""

    why: str
    never: bool = False
    """Trying again will not help (C42)."""
    after: tuple[str, ...] = ()
    """The header Retry-After, as it came."""

    def answer(self) -> dict[str, Any]:
        """Return what the parent is told."""
        return {"sent": False, "why": self.why, "never": self.never, "after": self.after}


class Watch:
    """Guards this process's sockets by `egress` once `install` was called, and keeps notes from `clear` on."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._notes: list[Note] = []

    def clear(self) -> None:
        """Forget what was noted: another message begins."""
        self._notes.clear()

    def failure(self, error: Exception | None) -> dict[str, Any]:
        """Return the answer for a message that was not taken, after all that was noted; `error` is what was raised."""
        refused = _refused(error)
        if refused is not None:
            self._notes.append(Note(refused))
        raised = "" if error is None else f": {type(error).__name__}"
        found = self._notes or [Note(f"did not take it, and Apprise does not say why{raised}")]
        # Of several, one that may pass: then it is worth another try.
        return next((one for one in found if not one.never), found[-1]).answer()

    def answered(self, status: int, after: tuple[str, ...]) -> None:
        """Note a status of HTTP that is no success (C42)."""
        if not succeeded(status):
            never = not passes(status) and not redirects(status)
            self._notes.append(Note(f"answered {status}", never, after))

    def install(self) -> None:
        """Guard every socket of this process, and note what its libraries meet. There is no way back."""
        sys.addaudithook(self._connecting)
        socket.getaddrinfo = self._looked_up(socket.getaddrinfo)
        socket.create_connection = self._noting(socket.create_connection, "is not reached")
        ssl.SSLContext.wrap_socket = self._noting(ssl.SSLContext.wrap_socket, "is not reached over TLS")  # type: ignore[method-assign]
        smtplib.SMTP.getreply = self._replied(smtplib.SMTP.getreply)  # type: ignore[method-assign]
        sessions: Any = importlib.import_module("requests.sessions")
        sessions.HTTPAdapter = self.adapter(sessions.HTTPAdapter)

    def adapter(self, base: Any) -> Any:
        """Return requests' adapter with a bound to what is read, which notes what became of each request."""
        watch = self

        class Adapter(base):  # type: ignore[misc]
            def send(self, *args: Any, **kwargs: Any) -> Any:
                with watch._network("is not reached"):
                    response = super().send(*args, **kwargs)
                response._content, response._content_consumed = b"", True  # noqa: SLF001 - requests reads without a bound
                with contextlib.suppress(Exception):  # the status is what counts, and it arrived whole (C49)
                    response._content = response.raw.read(ANSWER_LIMIT, decode_content=True)  # noqa: SLF001
                response.close()
                after = response.headers.get("Retry-After")
                watch.answered(response.status_code, () if after is None else (after,))
                return response

        return Adapter

    def _connecting(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse what is about to connect or send to an address that may not be reached (C46)."""
        if event not in _CONNECTS or args[1] is None:
            return
        place = args[1]
        host = place[0] if isinstance(place, tuple) else None
        try:
            if not isinstance(host, str):
                raise NotReached("a socket of this machine is no place for a notification")
            self._egress.check(host)
        except ValueError:
            raise NotReached("its name was not looked up here") from None

    def _looked_up(self, look_up: Callable[..., Any]) -> Callable[..., Any]:
        """Return a look-up that refuses a name as a whole where one of its addresses is internal (C46)."""

        def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
            found = look_up(*args, **kwargs)
            for *_, place in found:
                self._egress.check(place[0])
            return found

        return getaddrinfo

    def _noting(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            with self._network(what):
                return call(*args, **kwargs)

        return noted

    def _replied(self, getreply: Callable[..., tuple[int, bytes]]) -> Callable[..., tuple[int, bytes]]:
        def reply(connection: Any) -> tuple[int, bytes]:
            with self._network("broke the connection off"):
                code, text = getreply(connection)
            if code >= 400:  # noqa: PLR2004 - RFC 5321: 4yz may pass, 5yz will not
                self._notes.append(Note(f"answered {code}", code >= 500))  # noqa: PLR2004
            return code, text

        return reply

    @contextlib.contextmanager
    def _network(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._notes.append(Note(_refused(error) or _NAMED.get(type(error).__name__) or _cause(what, error)))
            raise


def _refused(error: BaseException | None) -> str | None:
    refusals = [f"not reached: {one}" for one in _chain(error) if isinstance(one, NotReached)]
    return refusals[0] if refusals else None


def _cause(what: str, error: Exception) -> str:
    for one in _chain(error):
        if isinstance(one, ssl.SSLError):
            return f"is not reached over TLS: {one.reason or type(one).__name__}"
        if isinstance(one, TimeoutError):
            return f"{what}: no answer in time"
        if isinstance(one, OSError) and one.strerror:
            return f"{what}: {one.strerror}"
    return what


def _chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and all that led to it; urllib3 keeps some of these in arguments and in `reason`."""
    found: list[BaseException] = []
    ahead = [error]
    while ahead:
        one = ahead.pop(0)
        if isinstance(one, BaseException) and one not in found:
            found.append(one)
            ahead += [getattr(one, "reason", None), one.__cause__, one.__context__, *one.args]
    return found
