"""Warnings of a wrap pack: what keeps a command from working as it reads, and a write that runs unasked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime_core.lint import lint, warnings
from runtime_core.manifest import parse_manifest
from runtime_core.policy import parse_policy

FILE: dict[str, Any] = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
LIMIT: dict[str, Any] = {"type": "object", "properties": {"limit": {"type": "integer"}}}
SORT = "surface.json /verbs/sorter.sort"


def told(verb: dict[str, Any], entry: dict[str, Any] | None = None, **top: Any) -> list[str]:
    """Return the warnings of a pack with one command, which has no issue."""
    pack = {"id": "sorter", "adapter": {"kind": "wrap", "bin": "sort"}, "sandbox": {"bins": ["sort"]}, **top}
    manifest = parse_manifest(json.dumps({**pack, "verbs": {"sorter.sort": verb}}).encode())
    ruled = {"operation": "read", "privacy": {"land": "personal"}, **(entry or {})}
    whole = {"surface_id": "sorter", "version": 1, "verbs": {"sorter.sort": ruled}}
    policy = parse_policy(json.dumps(whole).encode())
    assert lint(manifest, policy) == []
    return list(warnings(manifest, policy))


@pytest.mark.parametrize(
    ("cli", "args"),
    [
        ([], None),
        (["--", "{file}"], FILE),
        (["--file={file}"], FILE),
        ([["-n", "{limit}"]], LIMIT),
        ([{"flag": "-r", "when": "limit"}, {"flag": "--confirm", "when": "confirm", "host": True}], LIMIT),
        (["{any}"], True),
        (["{any}"], {"additionalProperties": {"type": "string"}}),
        (["{any}"], {"patternProperties": {"^a": {}}}),
        (["{file}"], {"$ref": "#/$defs/one", "$defs": {"one": FILE}}),
        (["{file}"], {"$ref": "#one", "$defs": {"one": {"$anchor": "one", **FILE}}}),
        (["{file}"], {"allOf": [FILE]}),
        (["{file}"], {**FILE, "properties": {**FILE["properties"], "never": False}}),
    ],
)
def test_a_command_that_works_has_no_warning(cli, args):
    """Elements, groups, flags and schemas as they are written."""
    assert told({"cli": cli} if args is None else {"cli": cli, "args": args}) == []


@pytest.mark.parametrize(
    ("cli", "args", "warned"),
    [
        (["--", "{fil}"], FILE, 'cli/1: names "fil", which args does not declare (it declares file)'),
        ([["-n", "{limi}"]], LIMIT, 'cli/0: names "limi", which args does not declare (it declares limit)'),
        (
            [{"flag": "-r", "when": "back"}],
            LIMIT,
            'cli/0: names "back", which args does not declare (it declares limit)',
        ),
        (["{file}"], None, 'cli/0: names "file", which args does not declare (it declares none)'),
        (
            ["-n", "{limit}"],
            LIMIT,
            'cli/1: needs "limit", which args does not require: put it into a list, or require it',
        ),
        (
            ["{confirm}"],
            None,
            'cli/0: names confirm, which belongs to the runtime: write {"flag": …, "when": "confirm"}',
        ),
    ],
)
def test_an_element_that_no_caller_can_fill(cli, args, warned):
    """What exec would blame on the caller, `invalid args: /fil: is missing`, is told to who wrote it."""
    assert f"{SORT}/{warned}" in told({"cli": cli} if args is None else {"cli": cli, "args": args})


def test_an_arg_that_cli_never_uses():
    """It would be given for nothing; a required one above all."""
    args = {**FILE, "properties": {**FILE["properties"], "limit": {}}}
    assert told({"cli": ["--"], "args": args}) == [
        f'{SORT}/args: requires "file", which cli never uses',
        f'{SORT}/args: declares "limit", which cli never uses',
    ]


def test_a_command_without_cli():
    """The bare binary runs, drops what was given and ends well: an empty list says that it is meant."""
    missing = f"{SORT}/cli: is missing: sort runs with no arguments; write [] where that is meant"
    assert told({}) == [missing]
    assert told({"args": FILE}) == [missing, f'{SORT}/args: requires "file", which cli never uses']


@pytest.mark.parametrize(
    ("top", "named"),
    [
        ({"sandbox": {}}, '"sort"'),
        ({"sandbox": {"bins": ["gsort"]}}, '"sort"'),
        ({"adapter": "wrap"}, '"sorter" (the pack id, for adapter.bin is absent)'),
    ],
)
def test_a_binary_that_the_pack_does_not_want(top, named):
    """Nobody could allow it: `sandbox.bins` is what an operator chooses from."""
    warned = [f"surface.json /sandbox/bins: does not name {named}, so no command can run"]
    assert told({"cli": []}, **top) == warned


@pytest.mark.spec("4.5.2")
def test_a_write_that_runs_unasked():
    """Without `confirm` a write asks nobody; said either way, or for a connect command, it is no warning."""
    write = {"operation": "write"}
    unasked = 'a write that runs unasked; "confirm": true makes it ask, "confirm": false says that it is meant'
    assert told({"cli": []}, write) == [f"policy.json /verbs/sorter.sort: {unasked}"]
    assert told({"cli": []}, {**write, "confirm": True}) == []
    assert told({"cli": []}, {**write, "confirm": False}) == []
    assert told({"cli": [], "connect": True}, write) == []


def test_a_long_list_of_names_is_cut():
    """One line stays one line."""
    args = {"properties": {f"a{number}": {} for number in range(9)}}
    (warned, *_) = told({"cli": ["{b}"], "args": args})
    assert warned.endswith("(it declares a0, a1, a2, a3, a4, a5, a6, a7, …)")
