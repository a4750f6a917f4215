"""Lint: every kind, found at its place with its clause, all at once, and nothing in a good pack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime_core.errors import LintIssue, PackError, PackLintError, PackParseError
from runtime_core.lint import BINDING_PAIRS
from runtime_core.pack import Pack, lint_pack, read_pack

CASES = Path(__file__).parents[1] / "cases"
SURFACE: dict[str, Any] = {
    "id": "mail",
    "version": "1.0.0",
    "title": "Mail",
    "adapter": "wrap",
    "verbs": {"mail.list": {}, "mail.send": {}},
    "stimulusTriggers": [{"ref": "new_item"}],
}


def entry(operation: str = "read", **more: Any) -> dict[str, Any]:
    """Return a policy entry."""
    return {"operation": operation, "privacy": {"land": "personal"}, **more}


POLICY: dict[str, Any] = {
    "surface_id": "mail",
    "version": 1,
    "verbs": {"mail.list": entry(), "mail.send": entry("write", confirm=True)},
    "stimuli": {"new_item": entry()},
}


def issues(surface: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> list[LintIssue]:
    """Lint the good pack with top-level fields replaced."""
    first, second = {**SURFACE, **(surface or {})}, {**POLICY, **(policy or {})}
    return lint_pack(json.dumps(first).encode(), json.dumps(second).encode(), b"# Mail\n")


def told(found: list[LintIssue]) -> list[tuple[str, str, str]]:
    """Return kind, place and clause of each issue."""
    return [(issue.kind, issue.place, issue.clause) for issue in found]


def test_a_good_pack_has_no_issues() -> None:
    """The control."""
    assert issues() == []


class TestCoverage:
    @pytest.mark.spec("4.4.1")
    def test_missing_verb(self) -> None:
        """A command without an entry is missing."""
        found = issues(policy={"verbs": {"mail.list": entry()}})
        assert told(found) == [("missing_verb", "policy.json /verbs/mail.send", "4.4.1")]
        assert str(found[0]) == (
            "missing_verb: policy.json /verbs/mail.send: a command of the manifest has no entry [4.4.1]"
        )

    @pytest.mark.spec("4.4.2")
    @pytest.mark.parametrize("key", ["mail.drop", "Mail.list", "mail.list ", ""])
    def test_extra_verb(self, key: str) -> None:
        """An entry that is no command of the manifest is extra; keys are compared whole and by case."""
        found = issues(policy={"verbs": {**POLICY["verbs"], key: entry()}})
        assert told(found) == [("extra_verb", f"policy.json /verbs/{key}", "4.4.2")]

    @pytest.mark.spec("4.4.3")
    def test_missing_stimulus(self) -> None:
        """A trigger without an entry is missing, once, however often it is declared."""
        assert told(issues(policy={"stimuli": {}})) == [("missing_stimulus", "policy.json /stimuli/new_item", "4.4.3")]

    @pytest.mark.spec("4.4.4")
    def test_extra_stimulus(self) -> None:
        """An entry that is no trigger of the manifest is extra, and nothing else even when it is a write."""
        found = issues(policy={"stimuli": {"new_item": entry(), "other": entry("write")}})
        assert told(found) == [("extra_stimulus", "policy.json /stimuli/other", "4.4.4")]

    @pytest.mark.spec("4.4.write-stimulus")
    @pytest.mark.spec("4.2.6")
    def test_write_stimulus(self) -> None:
        """A trigger whose entry is a write cannot be."""
        found = issues(policy={"stimuli": {"new_item": entry("write")}})
        assert told(found) == [("write_stimulus", "policy.json /stimuli/new_item/operation", "4.4.write-stimulus")]

    @pytest.mark.spec("4.4.5")
    @pytest.mark.spec("1.2.pack-id")
    @pytest.mark.parametrize("surface_id", ["Mail", "mail ", "", "git"])
    def test_surface_id(self, surface_id: str) -> None:
        """The policy names the pack it belongs to, exactly."""
        assert told(issues(policy={"surface_id": surface_id})) == [
            ("surface_id_mismatch", "policy.json /surface_id", "4.4.5")
        ]


class TestEntries:
    @pytest.mark.spec("4.5.1")
    @pytest.mark.parametrize("confirm", [True, False])
    def test_confirm_on_read(self, confirm: bool) -> None:
        """A read entry and a stimulus have no confirm, not even false."""
        verbs = {**POLICY["verbs"], "mail.list": entry(confirm=confirm)}
        found = issues(policy={"verbs": verbs, "stimuli": {"new_item": entry(confirm=confirm)}})
        assert told(found) == [
            ("confirm_on_read", "policy.json /verbs/mail.list/confirm", "4.5.1"),
            ("confirm_on_read", "policy.json /stimuli/new_item/confirm", "4.5.1"),
        ]

    @pytest.mark.spec("4.5.1")
    def test_confirm_on_a_write(self) -> None:
        """A write may say confirm, true or false."""
        verbs = {**POLICY["verbs"], "mail.send": entry("write", confirm=False)}
        assert issues(policy={"verbs": verbs}) == []

    @pytest.mark.spec("4.2.5")
    def test_connect_is_a_write(self) -> None:
        """A connect command is a write."""
        surface = {"verbs": {"mail.list": {"connect": True}, "mail.send": {"connect": True}}}
        assert told(issues(surface)) == [("connect_not_write", "policy.json /verbs/mail.list/operation", "4.2.5")]


class TestManifest:
    @pytest.mark.spec("1.4.hubs")
    @pytest.mark.spec("1.4.binding-modes")
    @pytest.mark.parametrize("mode", ["public", "user", "local", "mothership", "mock"])
    def test_binding_pairs(self, mode: str) -> None:
        """Each mode takes the hubs of the table and no other."""
        legal = [
            hub
            for hub in ("keyring", "local-credential", "public", "none")
            if told(issues({"binding": {"mode": mode, "hub": hub}}))
            != [("binding_pair", "surface.json /binding/hub", "1.4.hubs")]
        ]
        assert tuple(sorted(legal)) == tuple(sorted(BINDING_PAIRS[mode]))
        assert issues({"binding": {"mode": mode, "hub": legal[0]}}) == []

    @pytest.mark.spec("1.5.passthrough")
    @pytest.mark.spec("1.3.command")
    @pytest.mark.parametrize("value", [["log"], [], None, 3])
    def test_passthrough(self, value: object) -> None:
        """The pass-through of HCP/1.1 is reported at the top and in the adapter, whatever it holds."""
        adapter = {"kind": "wrap", "allowedSubcommands": value, "maxArgv": value}
        found = issues({"allowedSubcommands": value, "maxArgv": value, "adapter": adapter})
        assert told(found) == [
            ("passthrough", f"surface.json {place}", "1.5.passthrough")
            for place in ("/allowedSubcommands", "/maxArgv", "/adapter/allowedSubcommands", "/adapter/maxArgv")
        ]

    @pytest.mark.spec("1.5.passthrough")
    def test_an_unknown_field_is_no_passthrough(self) -> None:
        """A tolerated field that is spelled like the attribute of one we know neither is it nor hides it."""
        assert issues({"max_argv": 3, "allowed_subcommands": []}) == []
        assert told(issues({"max_argv": 3, "maxArgv": 3})) == [
            ("passthrough", "surface.json /maxArgv", "1.5.passthrough")
        ]

    def test_duplicate_keys(self) -> None:
        """A ref declared twice, and keys equal but for case, are duplicates; a verb_key may equal a ref."""
        keys = ["mail.list", "mail.send", "Mail.List"]
        refs = ["new_item", "new_item", "NEW_ITEM", "mail.list"]
        found = issues(
            {"verbs": {key: {} for key in keys}, "stimulusTriggers": [{"ref": ref} for ref in refs]},
            {"verbs": {key: entry() for key in keys}, "stimuli": {ref: entry() for ref in refs}},
        )
        assert [(issue.kind, issue.place, issue.reason) for issue in found] == [
            ("duplicate_key", "surface.json /verbs/Mail.List", 'differs from "mail.list" in case only'),
            ("duplicate_key", "surface.json /stimulusTriggers/1/ref", "declared before"),
            ("duplicate_key", "surface.json /stimulusTriggers/2/ref", 'differs from "new_item" in case only'),
        ]

    @pytest.mark.spec("9.3.embed")
    @pytest.mark.spec("1.1.principal")
    @pytest.mark.parametrize(
        "key",
        [
            *("user", "users", "role", "roles", "allow_users", "deny_users", "allowUsers", "allowed-roles", "tenant"),
            *(
                "tenant_id",
                "tenantId",
                "principal",
                "principals",
                "grant",
                "grants",
                "acl",
                "ACL",
                "password",
                "PASSWORD",
            ),
            *(
                "secret",
                "clientSecret",
                "token",
                "access_token",
                "accessTokens",
                "api_key",
                "apiKey",
                "APIKey",
                "apikey",
            ),
            *("credential", "credentials", "private_key", "x-user-ids"),
        ],
    )
    def test_embedded_principals(self, key: str) -> None:
        """A key that names who may act, or with what, is reported at the top and inside tolerated fields."""
        found = issues({key: ["ana"], "x-extra": [{"deep": {key: None}}]})
        assert told(found) == [
            ("embedded_principal", f"surface.json /{key}", "9.3.embed"),
            ("embedded_principal", f"surface.json /x-extra/0/deep/{key}", "9.3.embed"),
        ]

    @pytest.mark.spec("9.3.embed")
    def test_names_that_embed_nobody(self) -> None:
        """Schemas, names of commands and triggers, mapped fields and harmless words are left alone."""
        schema = {"type": "object", "properties": {"user": {}, "password": {}}}
        surface = {
            "verbs": {"users": {"args": schema}, "mail.token": {"cli": [{"flag": "--secret", "when": "secret"}]}},
            "stimulusTriggers": [{"ref": "role", "data": schema}],
            "binding": {
                "mode": "public",
                "hub": "none",
                "env": {"API_KEY": "secret"},
                "headers": {"Token": "password"},
            },
            **{
                name: {}
                for name in ("tokenizer", "user_guide", "keywords", "rolesByline", "secretary", "key", "x", "4")
            },
        }
        policy = {"verbs": {"users": entry(), "mail.token": entry()}, "stimuli": {"role": entry()}}
        assert issues(surface, policy) == []

    @pytest.mark.spec("4.5.2")
    @pytest.mark.parametrize("name", ["confirm", "apply"])
    @pytest.mark.parametrize(
        "schema",
        [
            '{"properties": {"%s": {}}}',
            '{"required": ["%s"]}',
            '{"dependentRequired": {"a": ["%s"]}}',
            '{"dependentRequired": {"%s": []}}',
            '{"dependentSchemas": {"a": {"required": ["%s"]}}}',
            '{"allOf": [true, {"anyOf": [{"properties": {"%s": true}}]}]}',
            '{"oneOf": [{"if": {}, "then": {"properties": {"%s": true}}, "else": false}]}',
            '{"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"$ref": "#/$defs/c"}, "c": {"required": ["%s"]}}}',
            '{"$ref": "#/allOf/0", "allOf": [{"$ref": "#"}], "required": ["%s"]}',
            '{"$ref": "#/allOf/001", "allOf": [{}, {"properties": {"%s": {}}}]}',
            '{"$ref": "#/%%24defs/a%%25", "$defs": {"a%%": {"required": ["%s"]}}}',
        ],
    )
    def test_reserved_args(self, schema: str, name: str) -> None:
        """A schema that declares confirm or apply at the level of the args is reported, wherever it says so."""
        found = issues({"verbs": {"mail.list": {"args": json.loads(schema % name)}, "mail.send": {}}})
        assert told(found) == [("reserved_arg", "surface.json /verbs/mail.list/args", "4.5.2")]
        assert name in found[0].reason

    @pytest.mark.spec("4.5.2")
    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"inner": {"properties": {"confirm": {}}}}},
            {"$defs": {"confirm": {"required": ["apply"]}}, "properties": {"a": {"$ref": "#/$defs/confirm"}}},
            {"properties": {"Confirm": {}, "applying": {}}, "$ref": "#/$defs/x", "$defs": {"x": True}},
            {"$ref": "#here", "$defs": {"x": {"$anchor": "here"}}},
            True,
            {"$ref": f"#/allOf/{'0' * 4400}", "allOf": [True]},
            # An `if` alone decides nothing, so the validator does not look where it leads: there it need be no schema.
            {"if": {"$ref": "#/default"}, "default": 5},
            {"if": {"$ref": "#/default"}, "default": {"properties": 5}},
            {"if": {"$ref": "#/default"}, "default": {"properties": ["confirm"]}},
            {"if": {"$ref": "#/default"}, "default": {"required": 5}},
            {"if": {"$ref": "#/default"}, "default": {"required": [["confirm"]]}},
            {"if": {"$ref": "#/default"}, "default": {"allOf": 5}},
            {"if": {"$ref": "#/default"}, "default": {"dependentRequired": ["confirm"]}},
            {"if": {"$ref": "#/default"}, "default": {"dependentRequired": {"a": 5}}},
            {"if": {"$ref": "#/default"}, "default": {"dependentSchemas": [5]}},
        ],
    )
    def test_args_that_are_not_reserved(self, schema: object) -> None:
        """Inside other args these names mean nothing, and other names never do."""
        assert issues({"verbs": {"mail.list": {"args": schema}, "mail.send": {}}}) == []


class TestAllAtOnce:
    @pytest.mark.spec("4.4.reject")
    def test_every_issue_is_reported(self) -> None:
        """All kinds that apply are reported together, those of surface.json first."""
        surface = {
            "binding": {"mode": "user", "hub": "none"},
            "maxArgv": 3,
            "roles": [],
            "verbs": {"mail.list": {"args": {"required": ["apply"]}}, "MAIL.LIST": {}, "mail.send": {"connect": True}},
        }
        verbs = {"mail.list": entry(confirm=False), "mail.send": entry(), "mail.drop": entry()}
        stimuli = {"new_item": entry("write", confirm=True), "old_item": entry()}
        found = issues(surface, {"surface_id": "x", "verbs": verbs, "stimuli": stimuli})
        assert [issue.kind for issue in found] == [
            *("binding_pair", "passthrough", "embedded_principal", "duplicate_key", "reserved_arg"),
            *("surface_id_mismatch", "missing_verb", "extra_verb", "extra_stimulus"),
            *("confirm_on_read", "connect_not_write", "write_stimulus", "confirm_on_read"),
        ]
        assert [issue.place.split()[0] for issue in found] == ["surface.json"] * 5 + ["policy.json"] * 8

    @pytest.mark.spec("4.4.reject")
    def test_any_issue_rejects(self) -> None:
        """A pack with an issue is not read, and the error carries all of them in one line."""
        policy = {**POLICY, "verbs": {}, "stimuli": {}}
        with pytest.raises(PackLintError) as caught:
            read_pack(json.dumps(SURFACE).encode(), json.dumps(policy).encode(), b"")
        assert [issue.kind for issue in caught.value.issues] == ["missing_verb", "missing_verb", "missing_stimulus"]
        assert str(caught.value) == (
            "mail: missing_verb: policy.json /verbs/mail.list: a command of the manifest has no entry [4.4.1]"
            " and 2 more (run `sense-worker pack lint`)"
        )

    def test_no_kinds_for_a_pack_that_fails_parse(self) -> None:
        """Surface is judged before policy, and both before lint."""
        bad_surface, bad_policy = json.dumps({**SURFACE, "id": "M"}), json.dumps({**POLICY, "version": 2, "verbs": {}})
        with pytest.raises(PackParseError) as caught:
            lint_pack(bad_surface.encode(), bad_policy.encode(), b"")
        assert caught.value.file == "surface"
        with pytest.raises(PackParseError) as caught:
            lint_pack(json.dumps(SURFACE).encode(), bad_policy.encode(), b"\xff")
        assert caught.value.file == "policy"


INDEX = json.loads((CASES / "C21-index.json").read_bytes())["files"]
SKETCH = json.loads((CASES / "C21-surface.json").read_bytes())
HANDED = json.dumps({**SKETCH, "adapter": "wrap", "version": "1.0.0", "title": "Mail"}).encode()
PLACES = {
    "C21-unknown-top.json": "policy.json /owner: unknown field",
    "C21-unknown-entry.json": "policy.json /verbs/mail.list/role: unknown field",
    "C21-unknown-privacy.json": "policy.json /verbs/mail.list/privacy/tenant: unknown field",
    "C21-version-true.json": "policy.json /version: must be the integer 1, not true",
    "C21-version-text.json": 'policy.json /version: must be the integer 1, not "1"',
    "C21-confirm-text.json": 'policy.json /verbs/mail.send/confirm: must be true or false, not "NO"',
    "C21-confirm-on-read.json": "confirm_on_read: policy.json /verbs/mail.list/confirm: ",
    "C21-land-unknown.json": "policy.json /verbs/mail.list/privacy/land: must be 'personal', 'brain' or 'local', not ",
    "C21-operation-case.json": "policy.json /verbs/mail.list/operation: must be 'read' or 'write', not \"READ\"",
    "C21-write-stimulus.json": "write_stimulus: policy.json /stimuli/new_item/operation: ",
    "C21-missing-stimulus.json": "missing_stimulus: policy.json /stimuli/new_item: ",
    "C21-extra-stimulus.json": "extra_stimulus: policy.json /stimuli/other: ",
    "C21-missing-verb.json": "missing_verb: policy.json /verbs/mail.send: ",
    "C21-extra-verb.json": "extra_verb: policy.json /verbs/mail.drop: ",
    "C21-surface-id.json": "surface_id_mismatch: policy.json /surface_id: ",
    "C21-verbs-list.json": "policy.json /verbs: must be an object, not a list",
    "C21-top-array.json": "policy.json: must be an object, not a list",
    "C21-null-privacy.json": "policy.json /verbs/mail.list/privacy: must be an object, not null",
}


@pytest.mark.case("C21")
@pytest.mark.parametrize("name", [name for name, told in INDEX.items() if not told["load"]])
def test_the_handed_policies(name: str) -> None:
    """Each nearly right policy is refused with an error that names the place, and the kind where it is lint's."""
    with pytest.raises(PackError) as caught:
        read_pack(HANDED, (CASES / name).read_bytes(), b"# mail\n")
    assert str(caught.value).removeprefix("mail: ").startswith(PLACES[name])
    if INDEX[name]["why"].startswith("lint "):
        assert isinstance(caught.value, PackLintError)
        assert [issue.kind for issue in caught.value.issues] == [INDEX[name]["why"].removeprefix("lint ")]


@pytest.mark.case("C21")
def test_the_handed_control() -> None:
    """The good policy loads."""
    pack: Pack = read_pack(HANDED, (CASES / "C21-good.json").read_bytes(), b"# mail\n")
    assert (pack.pack_id, list(pack.triggers)) == ("mail", ["new_item"])
    assert [name for name, told in INDEX.items() if told["load"]] == ["C21-good.json"]
