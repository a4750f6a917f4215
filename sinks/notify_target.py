"""One address of a notification, as the service that Apprise takes it for: what may be shown of it, and a send.

apprise is of the extra `notify`; whoever calls this needs it. It is imported in the process of `sinks.notify_child`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sinks.notify_text import EMPTY, shortened, units
from sinks.notify_watch import Note

if TYPE_CHECKING:
    from apprise import NotifyBase

    from sinks.notify_watch import Watch


class Target:
    """One address, as the service that Apprise takes it for."""

    def __init__(self, schema: str, service: NotifyBase, watch: Watch) -> None:
        self._schema = schema
        self._service = service
        self._watch = watch
        # Whatever the address asks for: a redirect would take the message to a place that nobody named.
        service.redirects = False

    @property
    def shown(self) -> str:
        """Return the part of the address that may be shown: its service, and its host where that is one.

        In many addresses a token stands in the host's place; only where every form of a service has a host is it one.
        """
        service = self._service
        forms: tuple[str, ...] = tuple(service.templates)
        if not service.host or not all("{host}" in form for form in forms):
            return self._schema
        port = f":{service.port}" if isinstance(service.port, int) else ""
        return f"{self._schema}://{service.host}{port}"

    def send(self, title: str, body: str) -> dict[str, Any]:
        """Send a message, shortened to what the service allows; returns the answer for the parent."""
        from apprise import NotifyFormat, NotifyType, OverflowMode

        text = body or title or EMPTY
        try:
            title, text = self._fitted(title, text)
        except ValueError:
            return Note("is given a character longer than its messages may be", never=True).answer()
        self._watch.clear()
        try:
            taken = self._service.notify(
                body=text,
                title=title,
                notify_type=NotifyType.INFO,
                body_format=NotifyFormat.TEXT,
                overflow=OverflowMode.UPSTREAM,
            )
        except Exception as error:  # noqa: BLE001 - of Apprise, its plugins and what they use
            return self._watch.failure(error)
        return {"sent": True} if taken else self._watch.failure(None)

    def _fitted(self, title: str, body: str) -> tuple[str, str]:
        """Return title and body within the service's limits; raises ValueError where not one character fits."""
        service = self._service
        longest = service.title_maxlen if service.title_maxlen > 0 else service.body_maxlen // 4
        title = shortened(title, lambda text: units(text) <= longest) if title else ""
        limit = service.body_maxlen - service.overflow_buffer
        if service.overflow_amalgamate_title and service.title_maxlen > 0:
            limit -= units(title) + 2
        # Marks, tags and escapes that the service's own format needs count too: what is measured is what is sent.
        return title, shortened(body, lambda text: all(units(one) <= limit for one in self._bodies(title, text)))

    def _bodies(self, title: str, body: str) -> list[str]:
        """Return the bodies as they would be sent: in the service's format, with the title where it has none."""
        from apprise import NotifyFormat, NotifyType, OverflowMode

        if 0 < self._service.body_max_line_count <= body.count("\n"):
            return ["\n" * self._service.body_maxlen + body]
        calls = self._service._build_send_calls(  # noqa: SLF001 - the only way to learn what a format makes of a text
            body=body,
            title=title,
            notify_type=NotifyType.INFO,
            body_format=NotifyFormat.TEXT,
            overflow=OverflowMode.UPSTREAM,
        )
        return [str(call["body"]) for call in calls]


def target(url: str, watch: Watch) -> Target | None:
    """Return what Apprise takes an address for; None where it is no address of its service."""
    from apprise import Apprise, AppriseAsset, PersistentStoreMode

    asset = AppriseAsset(
        async_mode=False,
        http_redirects=False,
        pgp_autogen=False,
        pem_autogen=False,
        storage_mode=PersistentStoreMode.MEMORY,
    )
    service = Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        return None
    return Target(url.partition("://")[0].lower(), service, watch)
