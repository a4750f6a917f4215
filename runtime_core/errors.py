"""Every exception of the three rooms, and the one table of refusals.

    HcpError
    ├── DoorError              a document or message refused at a door (§4 strictness, DESIGN §4)
    ├── PackError              a pack that is not served
    │   ├── PackParseError     a file of it failed its parse
    │   └── PackLintError      it parsed, and lint found issues (§4.4)
    ├── Denied                 an authorization refusal; the text is one of the table
    ├── UsageError             an operator's or caller's input names something wrong
    │   ├── NotFound
    │   └── Conflict
    ├── SettingsError          a setting stops the start
    ├── AuditUnavailable       the audit cannot be written now
    ├── LedgerBusy             the database is locked or away; try again
    ├── LedgerLost             the database's file was removed or replaced under this process
    ├── ExecError              a request was not judged, or its answer did not come
    │   ├── NoWorker           nobody reads requests
    │   ├── ExecTimeout        no answer in time; the command may have run
    │   ├── ExecRefused        it failed its door
    │   └── ExecUnreachable    Redis does not answer
    └── PublishError           an event was not accepted
        ├── IngressFull        the stream is at its bound
        └── IngressUnreachable Redis does not answer

Every message is one line: the place, what is wrong there, and the way out where there is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class HcpError(Exception):
    """A refusal or failure with a place, a reason and, where there is one, a way out."""

    def __init__(self, place: str, reason: str, way_out: str = "") -> None:
        self.place = place
        self.reason = reason
        self.way_out = way_out
        super().__init__(place, reason, way_out)

    def __str__(self) -> str:
        """Return one line: control characters escaped, so that no value forges a second one, long values shortened."""
        text = bounded(f"{self.place}: {self.reason}" if self.place else self.reason)
        if self.way_out:
            text = f"{text} ({self.way_out})"
        return printable(text)


class DoorError(HcpError):
    """A document or message refused at a door; `word` is the intake word of the refusal."""

    def __init__(self, word: str, place: str, reason: str, way_out: str = "") -> None:
        super().__init__(place, reason, way_out)
        self.word = word


class PackError(HcpError):
    """A pack that is not served."""


class PackParseError(PackError):
    """A file of a pack failed its parse; `file` is `surface`, `policy` or `harness`.

    `faults` are all that was found in the file, each as place and reason; the message tells the first.
    """

    def __init__(
        self, file: str, place: str, reason: str, way_out: str = "", *, more: Sequence[tuple[str, str]] = ()
    ) -> None:
        told = f"{reason} (and {len(more)} more)" if more else reason
        super().__init__(place, told, way_out)
        self.file = file
        self.faults = ((place, reason), *more)


@dataclass(frozen=True, slots=True)
class LintIssue:
    """One finding of lint: its kind, its place in the pack, what is wrong, the clause or source."""

    kind: str
    place: str
    reason: str
    clause: str

    def __str__(self) -> str:
        return printable(f"{self.kind}: {self.place}: {self.reason} [{self.clause}]")


class PackLintError(PackError):
    """A pack with lint issues; all of them, in file order (§4.4.reject)."""

    def __init__(self, pack_id: str, issues: Sequence[LintIssue]) -> None:
        self.issues = tuple(issues)
        more = f" and {len(self.issues) - 1} more" if len(self.issues) > 1 else ""
        super().__init__(pack_id, f"{self.issues[0]}{more}", "run `sense-worker pack lint`")


class Denied(HcpError):
    """An authorization refusal; `str()` is exactly the text of the table."""

    def __init__(self, text: str) -> None:
        super().__init__("", text)

    def __str__(self) -> str:
        """Return the text whole: names in it may be long, and it is compared."""
        return printable(self.reason)


class UsageError(HcpError):
    """Input that names something wrong or is wrong itself; nothing was changed."""


class NotFound(UsageError):
    """The named thing does not exist in the acting session's tenant."""


class Conflict(UsageError):
    """The named thing exists already with other content."""


class SettingsError(HcpError):
    """A setting stops the start; names the setting, never its value."""


class AuditUnavailable(HcpError):
    """The audit cannot be written now; nothing may happen that would need a line."""


class LedgerBusy(HcpError):
    """The database is locked or away; the same call may succeed later."""


class LedgerLost(HcpError):
    """The database's file was removed or replaced while this process had it open; only a new process can go on."""


class ExecError(HcpError):
    """A request was not judged, or its answer did not come."""


class NoWorker(ExecError):
    """Nobody reads requests; this one was taken back and will not run."""


class ExecTimeout(ExecError):
    """No answer came in time; the command may have run."""


class ExecRefused(ExecError):
    """The request failed its door; the reason is `refused: WORD`."""


class ExecUnreachable(ExecError):
    """Redis does not answer."""


class PublishError(HcpError):
    """An event was not accepted; it may be published again under the same message id."""


class IngressFull(PublishError):
    """The stream is at its bound; nothing was added and nothing trimmed."""


class IngressUnreachable(PublishError):
    """Redis did not answer within the publisher's attempts."""


def printable(text: str) -> str:
    r"""Return `text` with every control, format, separator and surrogate character escaped as `\xNN` or `\uNNNN`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


VALUE_LIMIT = 200
"""Characters of a value that an error repeats: enough to know it again."""
_LONG_VALUE = re.compile(rf"'[^']{{{VALUE_LIMIT},}}'|\"[^\"]{{{VALUE_LIMIT},}}\"|\S{{{VALUE_LIMIT + 1},}}")
_LINE_LIMIT = 2_000


def bounded(text: str) -> str:
    """Return `text` with every quoted or unbroken stretch over 200 characters shortened in its middle, 2000 in all."""
    if len(text) <= VALUE_LIMIT:
        return text
    text = _LONG_VALUE.sub(lambda found: _shortened(found[0], VALUE_LIMIT), text)
    return _shortened(text, _LINE_LIMIT)


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    ending = limit // 5
    return f"{text[: limit - ending]}…{text[-ending:]} [{len(text)} characters]"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row of the table: the text as a template, the step it belongs to, the clause it comes from."""

    template: str
    step: str
    clause: str

    def text(self, name: str = "") -> str:
        """Return the text with the pack, ref or capability filled in."""
        return self.template.replace("{}", printable(name), 1)


# DESIGN §7, in this order; the first that applies wins.
INTAKE_WORDS: tuple[str, ...] = (
    "no_body",
    "too_large",
    "unknown_credential",
    "bad_signature",
    "stale",
    "early",
    "activation_revoked",
    "session_revoked",
    "principal_disabled",
    "expired",
    "malformed",
    "unknown_field",
    "pack_missing",
    "undeclared_ref",
    "invalid_data",
    "conflict",
    "crashed",
)

PACK_NOT_INSTALLED = Refusal("pack not installed: {}", "resolve_pack", "4.4.reject")
ACTIVATION_REVOKED = Refusal("denied: activation revoked", "resolve_activation", "1.6.activate")
TRIGGER_NOT_DECLARED = Refusal("trigger not declared: {}", "resolve_trigger", "1.3.trigger")
SESSION_REVOKED = Refusal("denied: session revoked", "authenticate", "9.1.2")
SESSION_EXPIRED = Refusal("denied: session expired", "authenticate", "9.1.2")
PRINCIPAL_DISABLED = Refusal("denied: principal disabled", "authenticate", "9.1.2")
BRAIN_REQUIRES_PROJECT = Refusal("denied: privacy.land brain requires project_id", "authenticate", "9.2.2")
NOT_A_MEMBER = Refusal("denied: not a member of the project", "authenticate", "9.2.3")
CONTROL_PLANE = Refusal("denied: control plane requires an operator", "authenticate", "1.2.plane")
LAND_PERSONAL = Refusal("denied: privacy.land personal", "require_land", "4.3.personal")
LAND_LOCAL = Refusal("denied: privacy.land local requires a workspace sink", "require_land", "4.3.local")
SINK_OUTSIDE_PROJECT = Refusal("denied: sink outside the project", "require_land", "4.3.brain")
MISSING_SENSE_ENABLE = Refusal("denied: missing sense.enable", "require_capability", "9.7.sense")

SENSE_REFUSALS: tuple[Refusal, ...] = (
    PACK_NOT_INSTALLED,
    ACTIVATION_REVOKED,
    TRIGGER_NOT_DECLARED,
    SESSION_REVOKED,
    PRINCIPAL_DISABLED,
    BRAIN_REQUIRES_PROJECT,
    NOT_A_MEMBER,
    CONTROL_PLANE,
    LAND_PERSONAL,
    LAND_LOCAL,
    SINK_OUTSIDE_PROJECT,
    MISSING_SENSE_ENABLE,
)

PACK_NOT_ACTIVATED = Refusal("pack not activated: {}", "resolve_activation", "1.6.activate")
UNKNOWN_COMMAND = Refusal("unknown command: {}", "resolve_command", "1.3.command")
LOCAL_REQUIRES_WORKSPACE = Refusal("denied: privacy.land local requires a workspace", "authenticate", "4.3.local")
MISSING_PACK_CONNECT = Refusal("denied: missing pack.connect", "require_capability", "9.7.connect")
MISSING_EXEC_READ = Refusal("denied: missing verb.exec.read for {}", "require_capability", "9.7.read")
MISSING_EXEC_WRITE = Refusal("denied: missing verb.exec.write for {}", "require_capability", "9.7.write")
MOTHERSHIP = Refusal("denied: mothership binding requires an operator", "require_capability", "9.8.mothership")
CONFIRM_REQUIRED = Refusal("confirm required", "require_confirm", "9.7.confirm")
INVALID_ARGS = Refusal("invalid args: {}", "validate_args", "1.5.envelope")
COMPOSITE_LIMITS = Refusal("composite over 4 deep or 32 commands: {}", "preflight", "1.5.adapters")
AUDIT_UNAVAILABLE = Refusal("denied: audit unavailable", "require_audit", "9.6.1")
NOT_CONNECTED = Refusal("not connected: {}", "mint_binding", "1.6.connect")
BINDING_UNAVAILABLE = Refusal("binding unavailable: {}", "mint_binding", "1.4.hubs")
INTERRUPTED = Refusal("interrupted: outcome unknown", "begin", "9.6.1")

EXEC_REFUSALS: tuple[Refusal, ...] = (
    PACK_NOT_INSTALLED,
    PACK_NOT_ACTIVATED,
    UNKNOWN_COMMAND,
    SESSION_REVOKED,
    SESSION_EXPIRED,
    PRINCIPAL_DISABLED,
    BRAIN_REQUIRES_PROJECT,
    NOT_A_MEMBER,
    CONTROL_PLANE,
    LOCAL_REQUIRES_WORKSPACE,
    MISSING_PACK_CONNECT,
    MISSING_EXEC_READ,
    MISSING_EXEC_WRITE,
    MOTHERSHIP,
    CONFIRM_REQUIRED,
    INVALID_ARGS,
    COMPOSITE_LIMITS,
    AUDIT_UNAVAILABLE,
    NOT_CONNECTED,
    BINDING_UNAVAILABLE,
    INTERRUPTED,
)

# Why an admitted command failed (DESIGN §7).
TIMED_OUT = "timed out after {:g} s"
EXITED = "exited {}"
OVER_OUTPUT = "output over {} bytes"
OVER_PROCESSES = "over {} processes"
DEADLINE_PASSED = "deadline passed"
CANCELLED = "cancelled"

# Why a delivery waits or ends without a step that refused it (DESIGN §6): no clause decides these.
SINK_MISSING = "sink missing"
SINK_UNOPENED = "sink cannot be opened: {}"
SINK_PAUSED = "sink paused"
SINK_DISABLED = "sink disabled: {}"
WORKSPACE_NOT_SERVED = "workspace not served by this worker"
ROUTE_GONE = "route removed or expired"

REQUIRES_OPERATOR = Refusal("denied: requires an operator", "authenticate", "9.1.2")
MISSING_PACK_INSTALL = Refusal("denied: missing pack.install", "install", "9.7.install")
FAMILY_CONSENT = Refusal("denied: family {} has live bindings (join it with --join-family)", "install", "1.4.family")
