"""The form of a scenario file: what is not of it exits 2 and names its place (DESIGN §10)."""

from __future__ import annotations

import copy
import json
import shutil

import pytest

from tests.provision import write_pack
from tests.sense_worker.scenario.files import POLICY, SURFACE, WORLD, again, sense, step

GRANT = {"principal": "ana", "capability": "sense.enable", "pack": "mail"}
FULL = {
    **WORLD,
    "now": "2026-06-01T12:00:00Z",
    "rejected": {},
    "lint": {"mail": []},
    "projects": {"apollo": "acme"},
    "sessions": {"s2": {"principal": "ana", "tenant": "other"}},
    "connected": ["ana/mail"],
    "cases": [
        {"name": "one", **sense({"r1": "delivered"}, id="m1", subject="s", hold=False, message={})},
        {"exec": {"activation": "a1", "pack_id": "mail", "verb_key": "x", "args": {}}, "expect": {"ok": False}},
        {"install": {"principal": "ana", "pack": "mail"}, "expect": {"ok": False}},
        {"available": {"principal": "ana", "pack": "mail"}, "expect": {"installed": True}},
        again("one", {"r1": "delivered"}),
        step("grant", {**GRANT}),
        step("revoke", {**GRANT}),
        step("join", {"principal": "eve", "project": "apollo"}),
        step("activate", {"name": "a2", "principal": "bob", "pack": "mail"}),
        step("replace", {"surface": SURFACE, "policy": POLICY}),
        step("pause", {"project": "apollo"}),
    ],
}
OBJECTS = [
    *("", "/packs/0", "/principals/ana", "/sessions/s2", "/grants/0", "/activations/a1", "/routes/r1"),
    *("/cases/0", "/cases/0/sense", "/cases/1", "/cases/1/exec", "/cases/2", "/cases/2/install", "/cases/3"),
    *("/cases/3/available", "/cases/4", "/cases/5", "/cases/5/step", "/cases/5/step/grant", "/cases/6/step/revoke"),
    *("/cases/7/step/join", "/cases/8/step/activate", "/cases/9/step/replace", "/cases/10/step/pause"),
]
"""The place of every closed object of a file."""


def changed(place, value):
    """Return the full file with one place set."""
    document = copy.deepcopy(FULL)
    *steps, last = place.split("/")[1:]
    inner = document
    for one in steps:
        inner = inner[int(one) if isinstance(inner, list) else one]
    inner[int(last) if isinstance(inner, list) else last] = value
    return document


def test_the_full_form_is_read(check):
    """Every section, every kind of case and a step of each shape."""
    done = check.text(json.dumps(FULL))
    assert ("error" in done.file, done.code in {0, 1}) == (False, True)


@pytest.mark.parametrize("place", OBJECTS)
def test_an_unknown_key_is_an_error_with_its_place(check, place):
    """At every level; what a person meant is not guessed."""
    done = check.text(json.dumps(changed(f"{place}/colour", "green")))
    check.refused(f"{check.path} {place}/colour", "unknown field", done)


@pytest.mark.parametrize(
    ("place", "value", "at", "reason"),
    [
        ("/scenario", True, "/scenario", "must be the integer 1, not true"),
        ("/scenario", 1.0, "/scenario", "must be the integer 1, not 1.0"),
        ("/scenario", 2, "/scenario", "must be the integer 1, not 2"),
        ("/scenario", "1", "/scenario", 'must be the integer 1, not "1"'),
        ("/now", "2026-06-01T12:00:00", "/now", "RFC 3339"),
        ("/now", "2026-02-30T12:00:00Z", "/now", "RFC 3339"),
        ("/now", "1969-12-31T23:59:59Z", "/now", "1970"),
        ("/now", "9999-12-31T23:59:59Z", "/now", "5138"),
        ("/now", 5, "/now", "text"),
        ("/packs", {}, "/packs", "must be a list"),
        ("/packs/0", 5, "/packs/0", "must be a folder, or an inline pack"),
        ("/packs/0", {"surface": {}}, "/packs/0", "either policy or policy_text"),
        ("/packs/0/surface_text", "{}", "/packs/0", "either surface or surface_text"),
        ("/rejected", {"mail": "harness"}, "/rejected/mail", "'surface', 'policy' or 'lint'"),
        ("/lint", {"mail": "missing_verb"}, "/lint/mail", "must be a list"),
        ("/principals/ana", {"kind": "human"}, "/principals/ana/tenant", "missing"),
        ("/principals/ana/operator", "yes", "/principals/ana/operator", "true or false"),
        ("/principals/ana/expires", "2h", "/principals/ana/expires", "write +90s"),
        ("/principals/ana/expires", "+2w", "/principals/ana/expires", "write +90s"),
        ("/principals/ana/expires", None, "/principals/ana", "expires is null"),
        ("/principals/ana/projects", "apollo", "/principals/ana/projects", "must be a list"),
        ("/grants/0/capability", "sense.*", "/grants/0/capability", "'sense.enable'"),
        ("/grants/0/keys", None, "/grants/0", "keys is null"),
        ("/grants/0/keys", "new_item", "/grants/0/keys", "must be a list"),
        ("/activations/a1/principal", "ana", "/activations/a1", "either its session or its principal"),
        ("/activations/a1", {"pack": "mail"}, "/activations/a1", "either its session or its principal"),
        ("/activations/a1/workspace", 1, "/activations/a1/workspace", "true or false"),
        ("/activations/a1/project", None, "/activations/a1", "project is null"),
        ("/routes/r1/sink", "email", "/routes/r1/sink", "'inbox', 'workspace', 'own' or 'tenant'"),
        ("/routes/r1/sink", 5, "/routes/r1/sink", "must be a sink's word"),
        ("/routes/r1/sink", {}, "/routes/r1/sink/project", "missing"),
        ("/cases", None, "/cases", "must be a list"),
        ("/cases/0", {"name": "x", "expect": {}}, "/cases/0", "exactly one of sense, exec"),
        ("/cases/0", {**sense({}), **again("one", {})}, "/cases/0", "exactly one of sense, exec"),
        ("/cases/0", {"sense": {"activation": "a1"}}, "/cases/0/expect", "missing"),
        ("/cases/0/sense", {"ref": "new_item", "data": {}}, "/cases/0/sense/activation", "missing"),
        ("/cases/0/sense/hold", "true", "/cases/0/sense/hold", "true or false"),
        ("/cases/0/sense/message", None, "/cases/0/sense/message", "must be an object"),
        ("/cases/0/sense/raw", None, "/cases/0/sense", "raw is null"),
        ("/cases/0/expect", "delivered", "/cases/0/expect", "must be an object"),
        ("/cases/0/name", "", "/cases/0/name", "must not be empty"),
        ("/cases/1/exec/face", "gui", "/cases/1/exec/face", "'json' or 'cli'"),
        ("/cases/5/step", {}, "/cases/5/step", "exactly one change"),
        ("/cases/5/step/clock", "+1s", "/cases/5/step", "exactly one change"),
        ("/cases/5/step", {"clock": 400}, "/cases/5/step/clock", "text"),
        ("/cases/5/step", {"clock": "400s"}, "/cases/5/step/clock", "write +90s"),
        ("/cases/5/step", {"replace": "mail"}, "/cases/5/step/replace", "must be an object"),
        ("/cases/5/step", {"pause": "email"}, "/cases/5/step/pause", "'inbox', 'workspace', 'own' or 'tenant'"),
        ("/cases/5/expect", {}, "/cases/5/expect", "unknown field"),
    ],
)
def test_a_value_of_another_form_is_an_error_with_its_place(check, place, value, at, reason):
    """Types are strict, words are closed, null is never absent."""
    check.refused(f"{check.path} {at}", reason, check.text(json.dumps(changed(place, value))))


@pytest.mark.parametrize(
    ("place", "value", "at", "name"),
    [
        ("/rejected", {"ghost": "lint"}, "/rejected/ghost", "pack 'ghost'"),
        ("/lint", {"ghost": []}, "/lint/ghost", "pack 'ghost'"),
        ("/sessions/s2/principal", "zoe", "/sessions/s2/principal", "principal 'zoe'"),
        ("/grants/0/principal", "zoe", "/grants/0/principal", "principal 'zoe'"),
        ("/activations/a1/session", "zoe", "/activations/a1/session", "session 'zoe'"),
        ("/activations/a1", {"principal": "s2", "pack": "mail"}, "/activations/a1/principal", "principal 's2'"),
        ("/activations/a1/pack", "ghost", "/activations/a1/pack", "pack 'ghost'"),
        ("/routes/r1/principal", "zoe", "/routes/r1/principal", "principal 'zoe'"),
        ("/routes/r1/pack", "ghost", "/routes/r1/pack", "pack 'ghost'"),
        ("/connected", ["zoe/mail"], "/connected/0", "principal 'zoe'"),
        ("/connected", ["ana/ghost"], "/connected/0", "pack 'ghost'"),
        ("/connected", ["ana"], "/connected/0", "pack ''"),
        ("/cases/4/again", "two", "/cases/4/again", "earlier sense case 'two'"),
        ("/cases/5/step", {"grant": {**GRANT, "principal": "zoe"}}, "/cases/5/step/grant/principal", "'zoe'"),
        ("/cases/5/step", {"revoke": {**GRANT, "principal": "zoe"}}, "/cases/5/step/revoke/principal", "'zoe'"),
        ("/cases/5/step", {"join": {"principal": "zoe", "project": "p"}}, "/cases/5/step/join/principal", "'zoe'"),
        ("/cases/5/step", {"leave": {"principal": "zoe", "project": "p"}}, "/cases/5/step/leave/principal", "'zoe'"),
        ("/cases/8/step/activate/principal", "zoe", "/cases/8/step/activate/principal", "'zoe'"),
        ("/cases/8/step/activate/pack", "ghost", "/cases/8/step/activate/pack", "'ghost'"),
        ("/cases/5/step", {"deactivate": "a2"}, "/cases/5/step/deactivate", "activation 'a2'"),
        ("/cases/5/step", {"disable": "s2"}, "/cases/5/step/disable", "principal 's2'"),
        ("/cases/5/step", {"enable": "zoe"}, "/cases/5/step/enable", "principal 'zoe'"),
        ("/cases/5/step", {"revoke_session": "zoe"}, "/cases/5/step/revoke_session", "session 'zoe'"),
        ("/cases/5/step", {"connect": "zoe/mail"}, "/cases/5/step/connect", "principal 'zoe'"),
        ("/cases/5/step", {"disconnect": "ana/ghost"}, "/cases/5/step/disconnect", "pack 'ghost'"),
        ("/cases/5/step", {"remove": "ghost"}, "/cases/5/step/remove", "pack 'ghost'"),
    ],
)
def test_a_name_that_stands_for_nothing_is_an_error_with_its_place(check, place, value, at, name):
    """In the rows above the cases and in steps; an activation that a later step makes is not there yet."""
    check.refused(f"{check.path} {at}", name, check.text(json.dumps(changed(place, value))))


def test_again_looks_back_only(check):
    """A case further down is no earlier one."""
    check.wrong("/cases/0/again", "'later'", again("later", {}), sense({"r1": "delivered"}, name="later"))


def test_a_session_cannot_take_the_name_of_a_principal(check):
    """That name is the principal's own session."""
    sessions = {"bob": {"principal": "ana", "tenant": "acme"}}
    check.wrong("/sessions/bob", "a principal's own session", sessions=sessions)


def test_a_name_that_a_case_brings_is_not_judged_here(check):
    """What stands inside a case goes to the product's doors; so does an activation's project, and a grant's pack."""
    check.holds(
        sense({"refused": "unknown_credential"}, activation="nobody"),
        sense({"refused": "unknown_credential"}, activation=5),
        sense({"refused": "malformed"}, ref=None),
        sense({"refused": "undeclared_ref"}, ref="nothing"),
        {"install": {"principal": "zoe", "pack": "ghost"}, "expect": {"ok": False, "error": "denied: session revoked"}},
        activations={"a1": {"session": "ana", "pack": "mail", "project": "nobodys"}},
        grants=[{"principal": "ana", "capability": "sense.enable", "pack": "ghost"}],
    )


def test_a_revoke_without_an_equal_row_is_an_error_with_its_place(check):
    """Equal means every field as written; the keys are a set."""
    first = {**GRANT, "keys": ["new_item", "shared_item"], "expires": "+1h"}
    grants = {"grants": [first]}
    check.holds(step("revoke", {**first, "keys": ["shared_item", "new_item"]}), **grants)
    for other in (GRANT, {**first, "expires": "+2h"}, {**first, "keys": ["new_item"]}, {**first, "project": "apollo"}):
        check.wrong("/cases/0/step/revoke", "no grant equals", step("revoke", other), **grants)
    check.wrong("/cases/1/step/revoke", "no grant equals", step("revoke", first), step("revoke", first), **grants)


def test_a_clock_that_leaves_the_calendar_is_an_error_with_its_place(check):
    """Forward and back."""
    check.wrong("/cases/0/step/clock", "5138", step("clock", "+9999999d"))
    check.wrong("/cases/1/step/clock", "1970", step("clock", "+1d"), step("clock", "-999999d"))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        (b"", "", "must be an object"),
        (b"- 1\n", "", "must be an object"),
        (b"scenario: 1\nscenario: 1\n", " line 2", "stands twice"),
        (b"scenario: 1\ncases: !!python/name:os []\n", " line 2", "tag"),
        (b"scenario: 1\ncases: *x\n", " line 2", "alias"),
        (b"scenario: 1\n# \xff\n", " byte 14", "not UTF-8"),
        (b"\xef\xbb\xbfscenario: 1\n", " line 1", "byte-order mark"),
        (b"\xff\xfes\0c\0", " byte 0", "not UTF-8"),
        (b"scenario: [\n", " line 2", ""),
    ],
)
def test_a_file_that_is_no_yaml_is_an_error_with_its_line(check, text, place, reason):
    """One line; nothing runs."""
    check.refused(f"{check.path}{place}", reason, check.text(text))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        (b'{"scenario": 1, "scenario": 1}', " /scenario", "twice"),
        (b'{"scenario": 1, "now": "a\\u0000"}', " /now", "NUL"),
        (b'{"scenario": NaN}', " /scenario", "NaN"),
        (b'{"scenario": 9223372036854775808}', " /scenario", "64 bit"),
        (b"\xef\xbb\xbf{}", "", "mark"),
        (b'{"scenario": "\xff"}', " (byte 14)", "UTF-8"),
        (b"scenario: 1", "", ""),
    ],
)
def test_a_json_file_is_as_strict(check, text, place, reason):
    """A name that ends in .json is read as JSON and nothing else."""
    done = check.text(text, "scenario.json")
    error = done.file["error"]
    assert (done.code, error.startswith(f"{check.path}{place}"), reason in error) == (2, True, True), error


def test_json_and_yaml_say_the_same(check):
    """The same document, once in each."""
    document = json.dumps({**WORLD, "cases": [sense({"r1": "delivered"})]})
    assert check.text(document, "a.json").got == check.text(document, "a.yaml").got == [{"r1": "delivered"}]


def test_a_moment_needs_no_quotes(check):
    """YAML's own reading of dates is not ours."""
    assert check.text("scenario: 1\nnow: 2026-06-01T12:00:00Z\n").code == 0


def test_files_that_cannot_be_opened_are_named(check, tmp_path):
    """Missing, a folder, or over the limit."""
    (tmp_path / "folder").mkdir()
    with (tmp_path / "big.yaml").open("wb") as big:
        big.truncate(16 * 1024 * 1024 + 1)
    for name, reason in (("none.yaml", "No such file"), ("folder", "directory"), ("big.yaml", "over the limit")):
        check.refused(str(tmp_path / name), reason, check.run(str(tmp_path / name), "--json"))


@pytest.mark.parametrize("form", ["folder", "zip", "gztar", "tar"])
def test_packs_are_read_relative_to_the_file(check, tmp_path, monkeypatch, form):
    """A folder or an archive beside the file, wherever one stands when it is checked."""
    (tmp_path / "elsewhere").mkdir()
    folder = write_pack(tmp_path / "packs" / "mail", SURFACE, POLICY)
    source = "packs/mail"
    if form != "folder":
        source = shutil.make_archive(str(folder), form, folder)
        shutil.rmtree(folder)
        source = source.removeprefix(f"{tmp_path}/")
    monkeypatch.chdir(tmp_path / "elsewhere")

    check.holds(sense({"r1": "delivered"}), packs=[source], rejected={})


@pytest.mark.parametrize(
    ("source", "reason"), [("none", "No such file"), ("mail.zip", "No such file"), ("/dev/null", "directory")]
)
def test_a_pack_that_is_nowhere_is_an_error_with_its_place(check, source, reason):
    """No pack is made up for it."""
    check.wrong("/packs/1", reason, packs=[{"surface": SURFACE, "policy": POLICY}, source])


@pytest.mark.case("C23")
@pytest.mark.parametrize("name", ["C23-traversal.zip", "C23-symlink-file.zip", "C23-hardlink.tar"])
def test_an_archive_that_leads_out_is_an_error_with_its_place(check, name, pytestconfig):
    """It is refused whole, so there is no pack to speak of."""
    source = str(pytestconfig.rootpath / "tests" / "cases" / name)
    check.wrong("/packs/1", name, packs=[{"surface": SURFACE, "policy": POLICY}, source])
