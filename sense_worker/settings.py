"""Settings: one frozen object, read from the environment once and validated at boot (C11, C65).

One rule for every setting: it is unset, or it has an accepted value. An empty value, a reference nobody expanded
(`$X`, `${X}`) and any other value stop the start; the error names the setting and what is accepted, never the value.
Durations are seconds. `Settings(...)` takes what it is given and reads no environment; `Settings.load` does.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations at run time
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)

from runtime_core.addresses import parse_networks
from runtime_core.errors import SettingsError, printable
from runtime_core.redis_url import RedisUrl

PREFIX = "SENSE_"
TEST_PREFIX = "SENSE_TEST_"
"""Names under it belong to the test suite and are never reported as unknown."""

OVERLAP_LIMIT_S = 2_592_000
"""30 days: an overlap is for holders to follow, and while it lasts a secret that was replaced still opens the door."""

DATABASE_FORMS = "sqlite:////absolute/path.db or postgresql://name:password@host/database"

_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_REFERENCE = re.compile(r"\$(?:\w+|\{[^}]*\})")
_WHOLE = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,6})?", re.ASCII)
_SCHEMA = re.compile(r"[a-z][a-z0-9+.-]{0,31}", re.ASCII)
_PASSWORD = re.compile(r"(?<=://)([^/?#@:]*):.*@")
"""To the last @: a database password may hold a slash; masking too much is the safe side."""
_PASSWORD_IN_QUERY = re.compile(r"(?<=[?&]password=)[^&#]*", re.IGNORECASE)


def _flag(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _FLAGS:
        return _FLAGS[value]
    raise ValueError("must be one of true, false, 1, 0")


def _whole(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, str) and not _WHOLE.fullmatch(value)):
        raise ValueError("must be a whole number")
    return value


def _decimal(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, str) and not _DECIMAL.fullmatch(value)):
        raise ValueError("must be a number such as 5 or 0.5")
    return value


def _schedule(value: object) -> object:
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, list | tuple) and all(_DECIMAL.fullmatch(str(part)) for part in parts):
        return tuple(float(part) for part in parts)
    raise ValueError("must be seconds separated by commas, such as 5,300,1800")


def _folder(value: object) -> object:
    if not isinstance(value, str | Path):
        raise ValueError("must be a path")  # noqa: TRY004 - pydantic turns a ValueError into the setting's error
    try:
        # Children may run in another folder: a path means one place, the one it meant at boot.
        return Path(value).expanduser().absolute()
    except RuntimeError:
        raise ValueError("must be an absolute path: there is no home folder to stand for ~") from None


def _networks(value: object) -> object:
    return parse_networks(value) if isinstance(value, str) else value


def _services(value: object) -> object:
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if isinstance(parts, list | tuple) and all(_SCHEMA.fullmatch(str(part)) for part in parts):
        return tuple(str(part) for part in parts)
    raise ValueError("must be services separated by commas, such as slack,discord,mailto")


def _redis_url(value: object) -> object:
    if isinstance(value, str):
        try:
            RedisUrl.parse(value, more_options=True)
        except ValueError as error:
            raise ValueError(f"must be {error}") from None
    return value


def _database_url(value: object) -> object:
    if isinstance(value, str):
        backend, _, rest = value.partition("://")
        sqlite = backend == "sqlite" and rest.startswith("/") and Path(rest[1:]).is_absolute()
        if not sqlite and not (backend in ("postgresql", "postgresql+psycopg") and rest):
            raise ValueError(f"must be {DATABASE_FORMS}")
    return value


def masked(url: str) -> str:
    """Return `url` without its password; host and path stay, so that two servers can be told apart."""
    return _PASSWORD_IN_QUERY.sub("***", _PASSWORD.sub(r"\1:***@", url))


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


Flag = Annotated[bool, BeforeValidator(_flag)]
Whole = Annotated[int, BeforeValidator(_whole)]
Seconds = Annotated[float, BeforeValidator(_decimal), Field(allow_inf_nan=False)]
Folder = Annotated[Path, BeforeValidator(_folder)]
ServerUrl = Annotated[str, BeforeValidator(_redis_url)]
DatabaseUrl = Annotated[str, BeforeValidator(_database_url)]
# 30 days bound a delay: what waits longer than the default retention is gone before it is due.
Schedule = Annotated[
    tuple[Annotated[float, Field(ge=0, le=2_592_000)], ...],
    BeforeValidator(_schedule),
    Field(min_length=1, max_length=64),
]


Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], BeforeValidator(_networks)]
Services = Annotated[tuple[str, ...], BeforeValidator(_services)]


def _env_name(field: str) -> str:
    return "HCP_HOME" if field == "home" else PREFIX + field.upper()


class Settings(BaseModel):
    """Every setting of a process. Frozen; `repr` masks secrets and passwords."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        validate_by_name=True,
        validate_by_alias=True,
        alias_generator=_env_name,
        hide_input_in_errors=True,
    )

    home: Folder = Field(default_factory=lambda: Path("~/.hcp").expanduser().absolute())
    """HCP_HOME: the folder of keys, audit, sessions, packs and, by default, the database."""
    redis_url: ServerUrl | None = None
    """None: `up` starts a private server."""
    database_url: DatabaseUrl = Field(default_factory=lambda known: f"sqlite:///{known['home'] / 'sense.db'}")
    secret_keys: SecretStr | None = None
    """Fernet keys separated by commas, the current one first; None: the key file (see `Vault.load`)."""
    session_file: Folder = Field(default_factory=lambda known: known["home"] / "operator.session")
    activation_file: Folder | None = None
    rotate_overlap_s: Seconds = Field(900.0, ge=0, le=OVERLAP_LIMIT_S)
    """How long the secret before stays good after a rotation that names no overlap; 0: not at all."""
    allow_mock: Flag = False
    """Loosens a guard: bindings of mode mock are legal."""

    intake: Whole = Field(default_factory=_cores, ge=1, le=64)
    """Reader processes per worker; default: the cores."""
    batch_entries: Whole = Field(500, ge=1, le=5_000)
    batch_bytes: Whole = Field(4_194_304, ge=1_048_576, le=67_108_864)
    block_ms: Whole = Field(1_000, ge=1, le=10_000)
    """How long a read waits for entries. Stays under the reader's socket timeout."""
    heartbeat_s: Seconds = Field(5.0, ge=0.05, le=60)
    """A process not heard of for three of them is not alive."""
    reclaim_s: Seconds = Field(5.0, ge=0.05, le=3_600)
    sweep_s: Seconds = Field(1.0, ge=0.05, le=60)
    freshness_s: Seconds = Field(300.0, ge=1, le=86_400)
    """How far signed-at may lie from arrival, either way (C12)."""
    crash_limit: Whole = Field(3, ge=1, le=100)
    lease_slack_s: Seconds = Field(10.0, ge=0.1, le=600)
    """A lease is the sink's deadline and this: time to audit and settle a call that took all of its deadline."""
    linger_s: Seconds = Field(0.5, ge=0, le=60)
    retry_schedule_s: Schedule = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 36_000.0)
    """The wait before each retry; one attempt more than it has entries."""
    retry_jitter: Seconds = Field(0.2, ge=0, lt=1)
    """A share of the wait: 0.2 is up to 20 % either way."""
    stream_limit: Whole = Field(100_000, ge=1)
    """Entries a stream holds before a publisher is refused (IngressFull)."""
    retention_days: Whole = Field(30, ge=1, le=3_650)
    """How long events stay; also the dedupe window, so never under a day (DESIGN §4)."""
    concurrency: Whole = Field(4, ge=1, le=256)
    tool_memory_bytes: Whole = Field(2_147_483_648, ge=67_108_864, le=1_099_511_627_776)
    """Memory that each process of a wrapped tool may write to."""
    tool_file_bytes: Whole = Field(1_073_741_824, ge=4_096, le=1_099_511_627_776)
    """How large a file a wrapped tool may write."""
    tool_open_files: Whole = Field(1_024, ge=16, le=1_048_576)
    tool_processes: Whole = Field(256, ge=1, le=65_536)
    """How many processes a wrapped tool may be at once, itself counted."""
    """Processes of the event worker's pool."""
    exec_intake: Whole = Field(1, ge=0, le=64)
    """Reader processes of the exec worker; 0: `up` runs none, and nobody's commands."""
    exec_width: Whole = Field(16, ge=1, le=256)
    """Commands that one exec lane runs at a time."""
    exec_result_s: Seconds = Field(3_600.0, ge=1, le=604_800)
    """How long a result is kept for its client, read or not."""

    exec_networks: Networks = ()
    """Loosens a guard: internal networks that openapi packs may reach; public addresses need none."""

    sink_networks: Networks = ()
    """Loosens a guard: internal networks that sinks may reach; public addresses need none."""
    notify_services: Services = ()
    """Loosens a guard: services that notify sinks may use, by their Apprise schema."""

    audit_fsync: Flag = True
    """Tightens a guard: a batch of audit lines is on disk before its effect."""
    audit_rotate_bytes: Whole = Field(67_108_864, ge=4_096)
    anchor_s: Seconds = Field(5.0, ge=0.05, le=5)
    """How often the head of the audit chain is anchored; DESIGN §9 allows 5 s at most."""

    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    _unknown: tuple[str, ...] = PrivateAttr(())

    @classmethod
    def load(cls, env: Mapping[str, str] | None = None) -> Self:
        """Read `env` (None: the process's own). Raises SettingsError naming every setting that stops the start."""
        env = os.environ if env is None else env
        known = {_env_name(field) for field in cls.model_fields}
        given: dict[str, Any] = {name: value for name, value in env.items() if name in known}
        try:
            settings = cls(**given)
        except ValidationError as error:
            raise _refusal(error) from None
        settings._unknown = tuple(sorted(name for name in env if _looks_like_ours(name) and name not in known))
        return settings

    @model_validator(mode="before")
    @classmethod
    def _refuse_empty(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name, value in values.items():
            text = value.get_secret_value() if isinstance(value, SecretStr) else value
            place = _env_name(name) if name in cls.model_fields else name
            if isinstance(text, str) and not text.strip():
                raise SettingsError(place, "is empty", _way_out(place))
            if isinstance(text, str) and _REFERENCE.fullmatch(text.strip()):
                raise SettingsError(place, "is a reference that was not expanded", _way_out(place))
        return values

    @property
    def broker_url(self) -> str | None:
        """Return `redis_url` in the form Celery's transport reads; None where no server is set."""
        if self.redis_url is None or not self.redis_url.startswith("unix:"):
            return self.redis_url
        parts = urlsplit(self.redis_url)
        return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={RedisUrl.parse(self.redis_url).db}"

    @property
    def requests_url(self) -> str:
        """Where requests for commands are kept: in a file beside a SQLite ledger, else in the ledger's own database.

        SQLite has one writer at a time, and under load a batch of events is it for some 100 ms: no command waits for
        that.
        """
        place, mark, options = self.database_url.partition("?")
        if not place.startswith("sqlite"):
            return self.database_url
        stem, dot, ending = place.rpartition(".")
        return f"{stem}-requests{dot}{ending}{mark}{options}" if dot else f"{place}-requests{mark}{options}"

    @property
    def key_file(self) -> Path:
        """Return the place of the secret keys where SENSE_SECRET_KEYS is unset."""
        return self.home / "secret.keys"

    @property
    def audit_file(self) -> Path:
        """Return the place of this host's audit chain."""
        return self.home / "audit.jsonl"

    @property
    def unknown_warnings(self) -> tuple[str, ...]:
        """Return one line for each unknown name, with the setting it may be a misspelling of."""
        return tuple(_warning(name, [_env_name(field) for field in type(self).model_fields]) for name in self._unknown)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Return the fields for `repr`, passwords in addresses masked as SecretStr masks itself."""
        return [
            (name, masked(value) if name in ("redis_url", "database_url") and isinstance(value, str) else value)
            for name, value in super().__repr_args__()
        ]


def _looks_like_ours(name: str) -> bool:
    folded = name.upper()
    return folded.startswith(PREFIX) and not folded.startswith(TEST_PREFIX)


def _warning(name: str, known: list[str]) -> str:
    near = ["HCP_HOME"] if name.upper() == "SENSE_HOME" else difflib.get_close_matches(name.upper(), known, 1, 0.8)
    hint = f"; did you mean {near[0]}?" if near else ""
    return printable(f"{name}: unknown setting, ignored{hint}")


def _way_out(place: str) -> str:
    if place == "SENSE_SECRET_KEYS":
        return "set Fernet keys separated by commas, or unset it to use the key file"
    return "set a value, or unset it for the default"


def _refusal(error: ValidationError) -> SettingsError:
    """Put every finding into one line; pydantic's own texts name bounds and choices and leave the value out."""
    findings = []
    for issue in error.errors(include_url=False, include_input=False):
        if issue["type"] == "default_factory_not_called":
            continue  # a default that hangs on a setting already named
        place = str(issue["loc"][0]) if issue["loc"] else "settings"
        reason = str(issue["ctx"]["error"]) if issue["type"] == "value_error" else issue["msg"]
        findings.append((place, reason.replace("Input should", "must")))
    place, reason = findings[0]
    more = "".join(f"; {other}: {why}" for other, why in findings[1:] if other != place)
    return SettingsError(place, reason + more, "" if more else "unset it for the default")
