"""OpenAPI: a command is one request of the pack's own document, to a host that the document names (§1.5, DESIGN §5)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from runtime_core import errors
from runtime_core.adapters.bounds import MASK, masked, seconds_left
from runtime_core.adapters.openapi_document import DocumentFault, is_json
from runtime_core.adapters.openapi_plan import plan_of
from runtime_core.adapters.openapi_request import RequestFault, build, is_header_value
from runtime_core.binding import is_free
from runtime_core.egress import NotReached
from runtime_core.errors import DoorError
from runtime_core.runtime import Ran
from runtime_core.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Event

    from runtime_core.adapters.openapi_http import Answer
    from runtime_core.adapters.openapi_plan import Plan
    from runtime_core.adapters.openapi_request import Request
    from runtime_core.addresses import Network
    from runtime_core.execution import Call
    from runtime_core.runtime import Runtime

NEEDS_EXTRA = "openapi packs need the extra `openapi`: pip install 'sense-worker[openapi]'"
_FIELD = re.compile(r"\{([^{}]+)\}")
_GOOD = range(200, 300)
_CHARSETS = frozenset({"utf-8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16"})
"""Python knows more, some of which are no encodings of text and raise."""
_PLANS_LIMIT = 256
"""Plans that are kept; a plan costs about a millisecond to make."""


class OpenApiAdapter:
    """Runs commands of openapi packs.

    `cancelled` answers the event that ends the run of a request, or None; `networks` are the internal ones that the
    operator lets packs reach.
    """

    def __init__(
        self, cancelled: Callable[[str], Event | None] = lambda _: None, *, networks: Sequence[Network] = ()
    ) -> None:
        self._cancelled = cancelled
        self._networks = networks
        self._plans: dict[tuple[str, str], Plan] = {}

    def run(self, call: Call, runtime: Runtime) -> Ran:
        """Run one command. Answers `{"status", "body"}`; a connect command the body alone."""
        try:
            request = build(self._plan(call), call.facts.envelope.own_args)
            secrets = _add_credential(call, request.headers)
        except DocumentFault as fault:
            return Ran(error=f"document: {fault}")
        except RequestFault as fault:
            return Ran(error=errors.INVALID_ARGS.text(str(fault)))
        except _NoCredential as fault:
            return Ran(error=str(fault))
        timeout_s = seconds_left(call, runtime)
        if timeout_s <= 0:
            return Ran(error=errors.DEADLINE_PASSED)
        cancelled = self._cancelled(call.facts.request_id)
        if cancelled is not None and cancelled.is_set():
            return Ran(error=errors.CANCELLED)
        answer = self._exchange(call, request, timeout_s, cancelled, secret=bool(secrets))
        return answer if isinstance(answer, Ran) else _ran(call, answer, secrets)

    def _plan(self, call: Call) -> Plan:
        key = (call.pack.digest, call.chosen.key)
        known = self._plans.get(key)
        if known is None:
            known = plan_of(call.pack.manifest, call.chosen.verb)
            if len(self._plans) >= _PLANS_LIMIT:
                self._plans.clear()
            self._plans[key] = known
        return known

    def _exchange(
        self, call: Call, request: Request, timeout_s: float, cancelled: Event | None, *, secret: bool
    ) -> Answer | Ran:
        """Return the answer, or how the command failed without one."""
        try:
            from runtime_core.adapters import openapi_http as http
        except ModuleNotFoundError:
            return Ran(error=NEEDS_EXTRA)
        output = call.pack.manifest.sandbox.output_limit
        try:
            return http.exchange(request, http.Limits(timeout_s, output, self._networks, secret, cancelled))
        except TimeoutError:
            return Ran(error=errors.TIMED_OUT.format(timeout_s))
        except http.Cancelled:
            return Ran(error=errors.CANCELLED)
        except http.OverOutput:
            return Ran(error=errors.OVER_OUTPUT.format(output))
        except NotReached as reason:
            return Ran(error=f"not reached: {urlsplit(request.url).netloc}: {reason}")
        except http.NoAnswer as reason:
            # The service may have done what it was asked.
            writing = call.chosen.entry.operation == "write"
            return Ran(error=errors.INTERRUPTED.text() if writing else f"no answer: {reason}")


class _NoCredential(Exception):
    """Why the minted credential cannot be sent."""


def _add_credential(call: Call, headers: dict[str, str]) -> list[str]:
    """Put the minted fields into the headers that `binding.headers` maps; return what must not be told.

    Raises _NoCredential: a request that should carry a credential never goes without.
    """
    if call.binding is None or is_free(call.pack) or call.chosen.verb.connect:
        return []
    fields = call.binding.fields
    for header, mapped in call.pack.manifest.binding.headers.items():
        named = _FIELD.findall(mapped) or [mapped]
        missing = [field for field in named if field not in fields]
        if missing:
            raise _NoCredential(f"the credential has no field {missing[0]!r}")
        value = _FIELD.sub(lambda found: fields[found[1]], mapped) if _FIELD.search(mapped) else fields[mapped]
        if not is_header_value(value):
            raise _NoCredential("the credential is no header value")
        headers[header] = value
    plain = list(fields.values())
    return list(dict.fromkeys([*plain, *(json.dumps(one)[1:-1] for one in plain), *(quote(one, "") for one in plain)]))


def _ran(call: Call, answer: Answer, secrets: list[str]) -> Ran:
    good = answer.status in _GOOD
    error = None if good else f"answered {answer.status}"
    try:
        body = _body(answer, call.pack.manifest.sandbox.output_limit, secrets)
    except ValueError as unread:
        body, error = None, error or masked(str(unread), secrets)
    if call.chosen.verb.connect:
        return Ran(body, error) if good else Ran(error=error)
    return Ran({"status": answer.status, "body": body}, error)


def _body(answer: Answer, limit: int, secrets: list[str]) -> Any:
    """Return the body without any secret: JSON as its value, text as text, nothing as None. Raises ValueError."""
    if not answer.body:
        return None
    if answer.packed:
        raise ValueError("answered a packed body, which was not asked for")
    if is_json(answer.media):
        try:
            return _clean(parse(answer.body, limit=limit, what="body"), secrets)
        except DoorError as refused:
            # The place alone: the reason may show what stands there.
            raise ValueError(f"answered JSON that is refused at {refused.place}") from None
    if not answer.media.startswith("text/"):
        raise ValueError(f"answered {errors.printable(answer.media) or 'no media type'}, neither JSON nor text")
    charset = answer.charset.lower()
    return masked(answer.body.decode(charset if charset in _CHARSETS else "utf-8", "replace"), secrets)


def _clean(value: Any, secrets: list[str]) -> Any:
    """Return a JSON value with every secret in its texts, names and numbers masked."""
    if not secrets:
        return value
    if isinstance(value, str):
        return masked(value, secrets)
    if isinstance(value, dict):
        return {masked(name, secrets): _clean(inner, secrets) for name, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner, secrets) for inner in value]
    return MASK if not isinstance(value, bool) and value is not None and str(value) in secrets else value
