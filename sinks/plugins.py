"""Finding sink plugins by entry points, one by one: one that cannot be loaded is reported, the others work (C52)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import TYPE_CHECKING, NamedTuple

from runtime_core.errors import printable
from sinks.declared import Misdeclared, check
from sinks.trial import tried

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from sinks.protocol import Sink

GROUP = "sense_worker.sinks"
"""The entry point group of plugins; an entry point is named like the kind it brings."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A plugin that was left out, and why. `entry_point` is empty where a package's list of them is unreadable."""

    entry_point: str
    package: str
    """Name and version of the distribution."""
    reason: str

    def __str__(self) -> str:
        return printable(f"sink plugin {self.entry_point or '?'} of {self.package}: {self.reason}")


class _Claim(NamedTuple):
    package: str
    plugin: type[Sink]


def load_plugins(
    built_in: Collection[str], verdicts: Path | None = None, *, fresh: bool = False
) -> tuple[dict[str, type[Sink]], list[Fault]]:
    """Return the plugins that load, by kind, and a fault for each that does not; raises nothing of theirs.

    `built_in`: kinds that no plugin may take, and whose entry points are not imported. `verdicts` and `fresh`: see
    `sinks.trial.tried`.
    """
    faults: list[Fault] = []
    claims: dict[str, list[_Claim]] = {}
    found = _entry_points(faults)
    deadly = tried([one for one in found if one.name not in built_in], verdicts, fresh=fresh)
    for entry_point in found:
        package = _package(entry_point.dist)
        try:
            plugin = _load(entry_point, built_in, deadly)
        except Misdeclared as error:
            faults.append(Fault(entry_point.name, package, str(error)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the import runs a stranger's code
            faults.append(Fault(entry_point.name, package, _told(error)))
        else:
            claims.setdefault(plugin.kind, []).append(_Claim(package, plugin))
    plugins = {kind: claimed[0].plugin for kind, claimed in claims.items() if len({c.plugin for c in claimed}) == 1}
    for kind in sorted(claims.keys() - plugins.keys()):
        # The order of installation must not choose a receiver.
        packages = " and ".join(claim.package for claim in claims[kind])
        reason = f"kind {kind!r} is claimed by {packages}; none of them is taken"
        faults.extend(Fault(kind, claim.package, reason) for claim in claims[kind])
    return plugins, faults


def _entry_points(faults: list[Fault]) -> list[EntryPoint]:
    """Return the entry points of the group, by package and name."""
    try:
        found = list(entry_points(group=GROUP))
    except Exception:  # noqa: BLE001 - one package's broken metadata ends the whole scan: look at each by itself
        found = []
        for distribution in distributions():
            try:
                found.extend(distribution.entry_points.select(group=GROUP))
            except Exception as error:  # noqa: BLE001 - as above
                faults.append(Fault("", _package(distribution), f"its entry points are unreadable: {_told(error)}"))
    return sorted(found, key=lambda entry: (_package(entry.dist), entry.name, entry.value))


def _load(entry_point: EntryPoint, built_in: Collection[str], deadly: Mapping[str, str]) -> type[Sink]:
    if entry_point.name in built_in:
        raise Misdeclared(f"kind {entry_point.name!r} is built in and cannot be taken over")
    reason = deadly.get(f"{entry_point.name} = {entry_point.value}")
    if reason is not None:
        raise Misdeclared(reason)
    plugin = check(entry_point.load(), built_in=False)
    if plugin.kind != entry_point.name:
        raise Misdeclared(f"{plugin.__qualname__}.kind is {plugin.kind!r}; its entry point has to have the same name")
    return plugin


def _package(distribution: object) -> str:
    """Return name and version; metadata may lack either, and asking for it may raise."""
    try:
        return f"{distribution.name} {distribution.version}"  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - broken metadata; its folder is all that is left
        return str(getattr(distribution, "_path", "an unknown package"))


def _told(error: BaseException) -> str:
    """Return kind and first line of an exception, 300 characters at most; at import no option is there to show."""
    try:
        text = str(error).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001 - its own __str__ fails
        text = ""
    return printable(f"{type(error).__name__}: {text}"[:300]) if text else type(error).__name__
