"""Lint: what is wrong with a pack whose files parse (§4.4, DESIGN §5). Any issue rejects it (§4.4.reject).

    missing_verb, extra_verb, missing_stimulus, extra_stimulus, write_stimulus       the kinds of the chapter
    surface_id_mismatch, confirm_on_read, connect_not_write, composite_escalation,
    embedded_principal, passthrough, binding_pair, reserved_arg, duplicate_key       ours

Steps and their escalation are in `lint_composite`, reserved and embedded names in `lint_names`. What rejects no pack
and is hardly meant is a warning: `warnings`, of which the manifest knows its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from runtime_core.errors import LintIssue
from runtime_core.exact_json import pointer, shown
from runtime_core.lint_composite import composite_issues
from runtime_core.lint_names import embedded_names, reserved_args
from runtime_core.manifest_models import ABSENT
from runtime_core.pack_file import FILE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runtime_core.lint_composite import Judged
    from runtime_core.manifest import Manifest
    from runtime_core.policy import Policy

_UNASKED: Final = 'a write that runs unasked; "confirm": true makes it ask, "confirm": false says that it is meant'
BINDING_PAIRS: Final = {
    "public": ("public", "none"),
    "user": ("keyring", "local-credential"),
    "local": ("local-credential",),
    "mothership": ("keyring", "local-credential"),
    "mock": ("none",),
}
"""The hubs that may mint for each mode (DESIGN §5); whether mock is served at all is a setting."""


def lint(manifest: Manifest, policy: Policy, others: Mapping[str, Judged] | None = None) -> list[LintIssue]:
    """Return every issue, those of surface.json first.

    `others` are the installed packs by id, for composite steps that name them; of a pack that is not among them only
    what its steps show is judged, and each step still walks the whole pipeline when it runs.
    """
    return [
        *_binding(manifest),
        *_passthrough(manifest),
        *embedded_names(manifest),
        *_duplicates(manifest),
        *reserved_args(manifest),
        *composite_issues(manifest, policy, others or {}),
        *_identity(manifest, policy),
        *_coverage(manifest, policy),
        *_entries(manifest, policy),
    ]


def warnings(manifest: Manifest, policy: Policy) -> tuple[str, ...]:
    """Return one line for each thing that is legal and hardly meant, those of surface.json first.

    A write without `confirm` runs unasked (§4.5.2): `"confirm": false` says that it is meant. A connect command asks
    for what it needs by itself.
    """
    unasked = (
        f"{FILE_NAMES['policy']} {pointer(['verbs', key])}: {_UNASKED}"
        for key, entry in policy.verbs.items()
        if entry.operation == "write" and not entry.says_confirm
        if key in manifest.verbs and not manifest.verbs[key].connect
    )
    return (*manifest.warnings, *unasked)


def _identity(manifest: Manifest, policy: Policy) -> Iterator[LintIssue]:
    if policy.surface_id != manifest.id:
        reason = f"{shown(policy.surface_id)} is not the id of the manifest, {shown(manifest.id)}"
        yield _policy("surface_id_mismatch", ["surface_id"], reason, "4.4.5")


def _coverage(manifest: Manifest, policy: Policy) -> Iterator[LintIssue]:
    refs = {trigger.ref for trigger in manifest.stimulus_triggers}
    for key in manifest.verbs:
        if key not in policy.verbs:
            yield _policy("missing_verb", ["verbs", key], "a command of the manifest has no entry", "4.4.1")
    for key in policy.verbs:
        if key not in manifest.verbs:
            yield _policy("extra_verb", ["verbs", key], "no command of the manifest", "4.4.2")
    for ref in dict.fromkeys(trigger.ref for trigger in manifest.stimulus_triggers):
        if ref not in policy.stimuli:
            yield _policy("missing_stimulus", ["stimuli", ref], "a trigger of the manifest has no entry", "4.4.3")
    for ref in policy.stimuli:
        if ref not in refs:
            yield _policy("extra_stimulus", ["stimuli", ref], "no trigger of the manifest", "4.4.4")


def _entries(manifest: Manifest, policy: Policy) -> Iterator[LintIssue]:
    refs = {trigger.ref for trigger in manifest.stimulus_triggers}
    for key, entry in policy.verbs.items():
        if entry.says_confirm and entry.operation == "read":
            yield _policy("confirm_on_read", ["verbs", key, "confirm"], "only a write may have it, even false", "4.5.1")
        if key in manifest.verbs and manifest.verbs[key].connect and entry.operation != "write":
            yield _policy("connect_not_write", ["verbs", key, "operation"], "a connect command is a write", "4.2.5")
    for ref, entry in policy.stimuli.items():
        if ref in refs and entry.operation != "read":
            yield _policy("write_stimulus", ["stimuli", ref, "operation"], "a trigger is read", "4.4.write-stimulus")
        if entry.says_confirm:
            yield _policy("confirm_on_read", ["stimuli", ref, "confirm"], "a trigger has none, even false", "4.5.1")


def _binding(manifest: Manifest) -> Iterator[LintIssue]:
    mode, hub = manifest.binding.mode, manifest.binding.hub
    if hub not in BINDING_PAIRS[mode]:
        reason = f"mode {mode} with hub {hub}; it takes {' or '.join(BINDING_PAIRS[mode])}"
        yield _surface("binding_pair", ["binding", "hub"], reason, "1.4.hubs")


def _passthrough(manifest: Manifest) -> Iterator[LintIssue]:
    for steps, part in (((), manifest), (("adapter",), manifest.adapter)):
        for field, name in (("allowed_subcommands", "allowedSubcommands"), ("max_argv", "maxArgv")):
            # Not `model_fields_set`: it also has the tolerated fields, and one may be spelled like the attribute.
            if getattr(part, field) != ABSENT:
                reason = "a pass-through bootstrap of HCP/1.1; declare commands instead"
                yield _surface("passthrough", [*steps, name], reason, "1.5.passthrough")


def _duplicates(manifest: Manifest) -> Iterator[LintIssue]:
    refs = [trigger.ref for trigger in manifest.stimulus_triggers]
    for first, _, key in _equal_but_for_case(manifest.verbs):
        yield _surface("duplicate_key", ["verbs", key], f"differs from {shown(first)} in case only", "1.3.command")
    for first, index, ref in _equal_but_for_case(refs):
        reason = "declared before" if first == ref else f"differs from {shown(first)} in case only"
        yield _surface("duplicate_key", ["stimulusTriggers", index, "ref"], reason, "1.3.trigger")


def _equal_but_for_case(names: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Yield (the earlier name, index, name) for each name that was there before."""
    first: dict[str, str] = {}
    for index, name in enumerate(names):
        folded = name.casefold()
        if folded in first:
            yield first[folded], index, name
        else:
            first[folded] = name


def _surface(kind: str, steps: list[str | int], reason: str, clause: str) -> LintIssue:
    return LintIssue(kind, f"{FILE_NAMES['surface']} {pointer(steps)}", reason, clause)


def _policy(kind: str, steps: list[str | int], reason: str, clause: str) -> LintIssue:
    return LintIssue(kind, f"{FILE_NAMES['policy']} {pointer(steps)}", reason, clause)
