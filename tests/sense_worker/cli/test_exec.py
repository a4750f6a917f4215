"""`exec`: a pack's commands at a terminal, over a real tool."""

from __future__ import annotations

import pytest

from runtime_core.envelope import Envelope
from runtime_core.execution import ExecFacts, execute
from sense_worker.exec.process import build_runtime
from sense_worker.invoker import Invoker
from sense_worker.settings import Settings
from sense_worker.vault import Vault
from sense_worker.wiring import build_ports
from tests.notes_pack import SECRET, notes_files
from tests.provision import write_pack
from tests.sense_worker.cli.notes_home import LOGIN, audited, lines_of


def test_a_read_runs_and_prints_what_the_tool_said(notes):
    """For people its output, for programs the versioned result envelope; an integer arg is one."""
    notes("connect", "notes", *LOGIN)

    said = f"token of {len(SECRET)} characters, at most 5\n"
    assert notes("exec", "notes", "notes.list", "--arg", "limit=5") == (0, said, "")
    assert notes.json("exec", "notes", "notes.list", "--args-json", '{"limit": 5}') == {
        "v": 1,
        "ok": True,
        "pack_id": "notes",
        "verb_key": "notes.list",
        "result": {"stdout": said, "stderr": ""},
    }


@pytest.mark.spec("4.5.2")
@pytest.mark.spec("4.5.4")
@pytest.mark.spec("1.7.faces")
@pytest.mark.parametrize(
    ("flags", "confirmed"),
    [
        ((), False),
        (("--confirm",), True),
        (("--apply",), True),
        (("--arg", "confirm=true"), True),
        (("--args-json", '{"apply": "true"}'), True),
        (("--arg", "confirm=True"), False),
        (("--arg", "confirm=yes"), False),
        (("--args-json", '{"confirm": 1}'), False),
        (("--arg", "confirm:=false"), False),
    ],
)
def test_a_gated_write_runs_where_it_is_confirmed(notes, flags, confirmed):
    """The flags and exactly the text `true` become the boolean; nothing else confirms."""
    notes("connect", "notes", *LOGIN)

    done = notes("exec", "notes", "notes.add", "--arg", "text=hello", *flags)

    assert done == ((0, "added hello\n", "") if confirmed else (1, "", "error: confirm required\n"))


def test_a_failed_command_exits_1_with_its_reason_and_what_it_said(notes):
    """Its standard error is ours, and the envelope in JSON has both."""
    notes("connect", "notes", *LOGIN)

    assert notes("exec", "notes", "notes.break") == (1, "", "no break\nerror: exited 3\n")
    done = notes("exec", "notes", "notes.break", "--json")
    assert (done.code, done.err, done.json["ok"], done.json["error"]) == (1, "", False, "exited 3")


@pytest.mark.parametrize(
    "arguments",
    [
        ("notes",),
        ("notes", "notes.list", "--arg", "limit"),
        ("notes", "notes.list", "--arg", "limit=many"),
        ("notes", "notes.list", "--arg", "limit=1", "--arg", "limit=2"),
        ("notes", "notes.list", "--arg", "limit=1", "--args-json", '{"limit": 2}'),
        ("notes", "notes.add", "--arg", "text=a", "--confirm", "--arg", "confirm=true"),
        ("notes", "notes.list", "--args-json", "[1]"),
        ("notes", "notes.list", "--args-json", '{"limit": NaN}'),
        ("notes", "not a verb"),
        ("Not a pack", "notes.list"),
        ("notes", "notes.list", "--unknown"),
    ],
    ids=" ".join,
)
def test_arguments_that_cannot_be_meant_exit_2(notes, arguments):
    """One line, nothing on standard output; no command is judged and none recorded."""
    before = lines_of(notes.home)

    done = notes("exec", *arguments)

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert lines_of(notes.home) == before


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("mail", "mail.list"), "pack not installed: mail"),
        (("notes", "notes.drop"), "unknown command: notes.drop"),
        (("notes", "notes.list", "--project", "apollo"), "pack not activated: notes"),
        (("notes", "notes.shared"), "denied: privacy.land brain requires project_id"),
        (("notes", "notes.where"), "denied: privacy.land local requires a workspace"),
        (("notes", "notes.list", "--arg", "limit=0"), "invalid args: /limit: the value is less than the minimum of 1"),
        (("notes", "notes.list"), "not connected: notes"),
    ],
)
@pytest.mark.spec("9.6.3")
def test_a_refused_command_exits_1_and_is_recorded(notes, arguments, error):
    """What the pipeline refuses is its text, in both faces, and one line of the audit with that reason."""
    before = lines_of(notes.home)

    done = notes("exec", *arguments)
    as_json = notes("exec", *arguments, "--json")

    assert (done, as_json.code, as_json.json["error"]) == ((1, "", f"error: {error}\n"), 1, error)
    assert [(line["ok"], line["reason"]) for line in audited(notes.home, since=before)] == [(False, error)] * 2


@pytest.mark.spec("1.3.twin-face")
@pytest.mark.spec("9.6.1")
def test_the_terminal_and_the_envelope_leave_the_same_record(notes):
    """The same command as an envelope through the pipeline: the same answer, and line for line the same audit."""
    notes("connect", "notes", *LOGIN)
    settings = Settings.load({"HCP_HOME": str(notes.home)})
    ports = build_ports(settings)
    runtime = build_runtime(settings, ports, Vault.load(settings))
    with Invoker.open(settings) as invoker:
        session = invoker._acting().session_id
    for verb, typed, args in (
        ("notes.list", ("--arg", "limit=3"), {"limit": 3}),
        ("notes.add", ("--arg", "text=x"), {"text": "x"}),
        ("notes.add", ("--arg", "text=x", "--confirm"), {"text": "x", "confirm": True}),
        ("notes.break", (), {}),
    ):
        start = lines_of(notes.home)
        typed_answer = notes("exec", "notes", verb, *typed, "--json").json
        middle = lines_of(notes.home)
        facts = ExecFacts("default", session, None, Envelope("notes", verb, args), "request-1")
        answer = execute(runtime, facts).envelope()

        assert typed_answer == {"v": 1, **answer.plain()}
        both = audited(notes.home, since=start)
        assert (len(both), both[: len(both) // 2]) == (2 * (middle - start), both[len(both) // 2 :])
    ports.close()


@pytest.mark.spec("9.6.1")
@pytest.mark.spec("9.6.4")
def test_a_write_has_its_begin_and_its_end_with_the_whole_tuple(notes):
    """Principal and Binding identity are two fields; a connect's identity is known at its end."""
    before = lines_of(notes.home)
    notes("connect", "notes", *LOGIN)
    notes("exec", "notes", "notes.add", "--arg", "text=x", "--confirm")

    told = [
        (line["action"], line["principal"], line["tenant"], line["binding"], line["key"], line["operation"])
        for line in audited(notes.home, since=before)
    ]
    who = ("operator", "default")
    assert told == [
        ("exec.begin", *who, None, "notes.login", "write"),
        ("exec.end", *who, "ana@service", "notes.login", "write"),
        ("exec.begin", *who, "ana@service", "notes.add", "write"),
        ("exec.end", *who, "ana@service", "notes.add", "write"),
    ]
    assert notes.json("audit", "verify")["ok"] is True


def test_land_local_runs_in_the_workspace_of_the_activation(notes, tmp_path):
    """And brain under the project that is named, for a member."""
    (tmp_path / "work").mkdir()
    notes("connect", "notes", *LOGIN)
    notes.json("project", "add", "apollo")
    notes.json("project", "add-member", "apollo", "operator")
    notes.json("activate", "notes", "--project", "apollo", "--workspace", str(tmp_path / "work"))

    assert notes("exec", "notes", "notes.where", "--project", "apollo").out == f"{tmp_path / 'work'}\n"
    assert notes("exec", "notes", "notes.shared", "--project", "apollo").code == 0


@pytest.mark.spec("1.7.faces")
def test_the_help_tells_all_that_the_schema_says_of_an_arg(notes, tmp_path):
    """Type, format, choices, bounds, default: whoever calls it need not read the manifest."""
    files = notes_files()
    files["surface"]["verbs"]["notes.break"] = {
        "cli": [["{file}"], ["{day}"], ["{how}"], ["{part}"], ["{tags}"]],
        "args": {
            "properties": {
                "file": {"type": "string", "format": "path"},
                "day": {"type": "string", "format": "date"},
                "how": {"enum": ["up", "down"], "default": "up"},
                "part": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "multipleOf": 0.25},
                "tags": {"type": "array", "minItems": 1, "maxItems": 3},
            }
        },
    }
    notes.json("pack", "install", str(write_pack(tmp_path / "more", files["surface"], files["policy"])))

    shown = notes("exec", "notes", "notes.break", "--help").out.splitlines()
    assert [line.strip() for line in shown if line.startswith("  ")][2:] == [
        "file  string, a path within the working folder",
        "day   string, format date",
        'how   string, one of "up" "down", default "up"',
        "part  number, > 0, <= 1, a multiple of 0.25",
        "tags  array, 1 items or more, 3 items or fewer",
    ]


@pytest.mark.spec("1.5.sandbox")
def test_a_binary_that_is_not_allowed_has_its_way_out_beside(notes, tmp_path):
    """For people; the envelope has exactly the text. Availability says the same, and so did the install."""
    files = notes_files(pack_id="free", mode="public", hub="none")
    folder = write_pack(tmp_path / "free", files["surface"], files["policy"])
    way_out = "(pack install … --allow-bin tool=/absolute/path)"
    installed = notes("pack", "install", str(folder))
    assert installed.err == f"warning: free: tool is not allowed, so no command can run {way_out}\n"
    notes.json("grant", "add", "operator", "verb.exec.read", "--pack", "free")
    notes.json("activate", "free")

    assert notes("exec", "free", "free.list") == (1, "", f"error: binary not allowed: tool {way_out}\n")
    assert notes("exec", "free", "free.list", "--json").json["error"] == "binary not allowed: tool"
    assert f"free.list: binary not allowed: tool {way_out}" in notes("availability", "free").out
    reasons = {one["verb_key"]: one["reason"] for one in notes.json("availability", "free")["commands"]}
    assert reasons["free.list"] == "binary not allowed: tool"


@pytest.mark.spec("1.7.faces")
def test_the_help_of_a_command_is_made_from_the_pack(notes):
    """Its args with their types and bounds, its policy, an example; of a pack, its commands."""
    shown = notes("exec", "notes", "notes.list", "--help").out
    gated = notes("exec", "notes", "notes.add", "-h").out
    listed = notes("exec", "notes", "--help").out

    assert "limit  integer, >= 1. How many." in shown
    assert "operation read, land personal" in shown
    assert "List notes." in shown
    assert "needs --confirm" in gated
    assert "text  string, 1 characters or more, required" in gated
    assert "sense-worker exec notes notes.add --arg text=… --confirm" in gated
    assert [line.split()[:2] for line in listed.splitlines() if line.startswith("  ")] == [
        *(["notes.login", "write"], ["notes.list", "read"], ["notes.add", "write"]),
        *(["notes.shared", "read"], ["notes.where", "read"], ["notes.break", "read"]),
    ]
    assert "Usage: sense-worker exec" in notes("exec", "--help").out
    assert notes("exec", "notes", "notes.drop", "--help").code == 1


def test_a_session_that_is_unknown_runs_nothing(notes, monkeypatch, tmp_path):
    """A made-up secret is told, and recorded without a principal."""
    file = tmp_path / "forged.session"
    file.write_text((notes.home / "operator.session").read_text().replace('"secret": "', '"secret": "0'))
    file.chmod(0o600)
    monkeypatch.setenv("SENSE_SESSION_FILE", str(file))
    before = lines_of(notes.home)

    assert notes("exec", "notes", "notes.list").code == 2
    assert [(line["principal"], line["reason"]) for line in audited(notes.home, since=before)] == [
        (None, "session unknown")
    ]
