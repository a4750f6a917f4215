"""Commands on a real home: what they change, print and refuse. No server is needed for these."""

from __future__ import annotations

import json
import stat

import pytest

from sense_worker.operator import Operator
from sense_worker.settings import Settings
from sinks.plugins import Fault
from sinks.protocol import SinkBase
from sinks.registry import Registry
from tests.provision import write_pack

SESSION = ("session", "create", "ana")


def act_as(cli, monkeypatch, principal):
    """Let the next commands act under a new session of `principal`."""
    monkeypatch.setenv("SENSE_SESSION_FILE", cli.json("session", "create", principal)["file"])


def test_init_makes_a_home_and_a_second_run_changes_nothing(bare):
    """The first run says what it made, the second that all was there."""
    first = bare.json("init")
    second = bare.json("init")

    assert first["created"] == ["keys", "tenant", "principal", "grant", "sink inbox", "session"]
    assert (second["created"], second["session_file"]) == ([], str(bare.home / "operator.session"))
    assert "all was there, nothing changed" in bare("init").out


def test_a_further_tenant_has_its_own_operator_session(cli, monkeypatch):
    """What another tenant's operator lists is that tenant's."""
    monkeypatch.setenv("SENSE_SESSION_FILE", cli.json("init", "--tenant", "acme")["session_file"])
    cli.json("principal", "add", "zoe")

    assert cli.ids("principal", "list") == ["operator", "zoe"]
    monkeypatch.delenv("SENSE_SESSION_FILE")
    assert cli.ids("principal", "list") == ["operator"]


def test_without_init_a_command_says_the_way_out(bare):
    """One line, and nothing is made."""
    done = bare("grant", "list")

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        f"error: {bare.home}/operator.session: there is no session file (run `sense-worker init`"
    )
    assert not bare.home.exists()


@pytest.mark.parametrize(
    "command",
    [("status",), ("health",), ("grant", "list"), ("explain", "0" * 32), ("audit", "verify"), ("grant", "revoke", "g")],
)
def test_no_command_but_init_makes_a_database(cli, command):
    """Where the file is not there, a command names it and the way out in one line, and makes nothing."""
    for file in cli.home.glob("sense.db*"):
        file.unlink()
    before = sorted(cli.home.rglob("*"))

    done = cli(*command)

    assert done.code != 0
    said = [line for line in (done.out + done.err).splitlines() if "no database at" in line]
    assert all(f"{cli.home}/sense.db (run `sense-worker init`" in line for line in said)
    assert said
    assert sorted(cli.home.rglob("*")) == before


def test_principals(cli):
    """Added, listed, disabled, enabled; the same again is no error, another kind is."""
    cli.json("principal", "add", "ana")
    cli.json("principal", "add", "ana")
    bot = cli.json("principal", "add", "bot", "--kind", "service")

    assert (bot["id"], bot["kind"], bot["operator"]) == ("bot", "service", False)
    assert cli.json("principal", "disable", "bot")["disabled_at"] is not None
    assert cli.json("principal", "enable", "bot")["disabled_at"] is None
    assert cli.ids("principal", "list") == ["ana", "bot", "operator"]
    assert cli("principal", "add", "ana", "--kind", "agent").code == 1
    assert cli("principal", "add", "a b").code == 2
    assert cli("principal", "disable", "nobody").code == 1


def test_a_session_goes_into_a_private_file_and_its_secret_is_never_printed(mail, tmp_path):
    """By default under the home, by tenant and principal."""
    row = mail.json(*SESSION, "--expires", "30d")
    file = mail.home / "principals" / "default" / "ana.session"
    secret = json.loads(file.read_text())["secret"]

    assert (row["file"], stat.S_IMODE(file.stat().st_mode)) == (str(file), 0o600)
    assert "secret" not in row
    for arguments in ((*SESSION, "--file", str(tmp_path / "other")), ("session", "list")):
        assert secret not in mail(*arguments).out
    again = mail(*SESSION)
    assert (again.code, again.out, "--force replaces it" in again.err) == (1, "", True)
    assert json.loads(file.read_text())["secret"] == secret
    assert secret not in mail(*SESSION, "--force").out
    assert json.loads(file.read_text())["secret"] != secret
    assert (tmp_path / "other").is_file()


def test_sessions_are_listed_and_revoked(mail):
    """A revoked one says when."""
    session = mail.json(*SESSION)["id"]

    assert mail.json("session", "revoke", session)["revoked_at"] is not None
    assert session in mail.ids("session", "list")
    assert mail("session", "revoke", "ses_0").code == 1
    assert mail(*SESSION, "--expires", "soon").code == 2


def test_projects(mail):
    """Members come and go; who is unknown is refused."""
    mail.json("project", "add", "apollo")

    assert mail.json("project", "add-member", "apollo", "ana")["members"] == ["ana"]
    assert mail.json("project", "list")["items"][0]["members"] == ["ana"]
    assert mail.json("project", "remove-member", "apollo", "ana")["members"] == []
    assert mail("project", "add-member", "apollo", "nobody").err == (
        "error: principal: there is no 'nobody' (see `sense-worker principal list`)\n"
    )


def test_grants(mail):
    """Keys and an end narrow a grant; no key is all of them, and says so."""
    narrow = mail.json(
        *("grant", "add", "ana", "sense.enable", "--pack", "mail", "--key", "new_item", "--expires", "12h")
    )
    broad = mail.json("grant", "add", "ana", "sense.enable", "--pack", "mail")

    assert (narrow["keys"], narrow["expires_at"] is None) == (["new_item"], False)
    assert (broad["keys"], broad["expires_at"]) == (None, None)
    assert sorted(mail.ids("grant", "list", "--principal", "ana")) == sorted([narrow["id"], broad["id"]])
    listed = mail("grant", "list", "--principal", "ana").out.splitlines()
    assert sorted(line.split()[4] for line in listed[1:]) == ["all", "new_item"]
    assert mail.json("grant", "revoke", narrow["id"])["id"] == narrow["id"]
    assert mail.ids("grant", "list", "--principal", "ana") == [broad["id"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ("ana", "sense.*"),
        ("ana", "sense.enable", "--pack", "ma*"),
        ("ana", "sense.enable", "--key", "new_*"),
        ("ana", "mothership.elevate", "--pack", "mail"),
        ("ana", "mothership.elevate", "--expires", "12h"),
        ("ana", "sense.enable", "--expires", "1h30m"),
    ],
    ids=" ".join,
)
def test_a_grant_that_cannot_be_meant_is_refused(mail, arguments):
    """A pattern, an elevation without pack or end, no duration: one line, exit 2, no row."""
    done = mail("grant", "add", *arguments)

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert mail.ids("grant", "list", "--principal", "ana") == []


def test_sinks(mail, tmp_path):
    """Added with typed options, paused, resumed, removed; values of options are not shown."""
    file = tmp_path / "ana.jsonl"
    options = ("--option", f"path={file}", "--option", "fsync:=false")
    row = mail.json("sink", "add", "log", "jsonl", *options, "--audience", "principal:ana")

    assert (row["kind"], row["audience"], sorted(row["option_names"])) == ("jsonl", "principal:ana", ["fsync", "path"])
    assert str(file) not in mail("sink", "list").out
    assert mail.json("sink", "pause", "log")["paused_at"] is not None
    assert mail.json("sink", "resume", "log")["paused_at"] is None
    assert mail.ids("sink", "list", field="name") == ["inbox", "log"]
    assert mail.json("sink", "remove", "log")["name"] == "log"
    assert mail.ids("sink", "list", field="name") == ["inbox"]


def test_options_may_come_as_one_object(mail, tmp_path):
    """`--options-json @FILE` keeps what is secret out of the process list."""
    (tmp_path / "options.json").write_text(json.dumps({"path": str(tmp_path / "x.jsonl"), "fsync": False}))

    row = mail.json("sink", "add", "log", "jsonl", "--options-json", f"@{tmp_path}/options.json")

    assert sorted(row["option_names"]) == ["fsync", "path"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("jsonl",),
        ("jsonl", "--option", "path=relative"),
        ("jsonl", "--option", "path=/x", "--option", "fsync=false"),
        ("jsonl", "--option", "path=/x", "--option", "colour=green"),
        ("nosuchkind",),
        ("console", "--audience", "everybody"),
    ],
    ids=" ".join,
)
def test_a_sink_that_cannot_be_meant_is_refused(mail, arguments):
    """Missing, wrong, mistyped and unknown options, unknown kinds and audiences: exit 2, no row."""
    done = mail("sink", "add", "log", *arguments)

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert mail.ids("sink", "list", field="name") == ["inbox"]


def test_routes(mail, monkeypatch):
    """One's own; an operator may make one for another, and both are recorded."""
    own = mail.json("route", "add", "mail", "new_item", "inbox")
    anas = mail.json("route", "add", "mail", "*", "inbox", "--owner", "ana", "--expires", "30d")

    assert (own["owner"], anas["owner"], anas["created_by"]) == ("operator", "ana", "operator")
    assert sorted(mail.ids("route", "list")) == sorted([own["id"], anas["id"]])
    assert mail("route", "add", "mail", "nosuchref", "inbox").code == 1
    act_as(mail, monkeypatch, "ana")
    assert mail.ids("route", "list") == [anas["id"]]
    assert mail.json("route", "remove", anas["id"])["id"] == anas["id"]
    assert mail("route", "remove", own["id"]).code == 1
    assert mail("route", "add", "mail", "new_item", "inbox", "--owner", "operator").err == (
        "error: denied: requires an operator\n"
    )


def test_packs(mail, tmp_path):
    """Listed, shown with triggers and their land, removed; installed again as the next generation."""
    assert mail.ids("pack", "list", field="pack_id") == ["mail"]
    shown = mail.json("pack", "show", "mail")
    assert {trigger["ref"]: trigger["land"] for trigger in shown["triggers"]}["shared_item"] == "brain"
    assert mail.json("pack", "remove", "mail")["pack_id"] == "mail"
    assert mail("pack", "list").out == "no packs; `sense-worker pack install PATH`\n"
    assert mail("pack", "show", "mail").code == 1
    assert mail.json("pack", "install", str(tmp_path / "mail"))["generation"] == 2


def test_a_pack_is_shown_as_tables(bare, tmp_path):
    """One line a command and a trigger, under headings; warnings on standard error, and in JSON as they were."""
    bare("init")
    surface = {
        "id": "sorter",
        "adapter": {"kind": "wrap", "bin": "sort"},
        "sandbox": {"bins": ["sort"]},
        "verbs": {"sorter.save": {"cli": []}, "sorter.sort": {"cli": []}},
        "stimulusTriggers": [{"ref": "file.sorted", "summary": "A file was sorted."}],
    }
    read = {"operation": "read", "privacy": {"land": "personal"}}
    verbs = {"sorter.save": {**read, "operation": "write", "confirm": True}, "sorter.sort": read}
    policy = {"surface_id": "sorter", "version": 1, "verbs": verbs, "stimuli": {"file.sorted": read}}
    bare("pack", "install", str(write_pack(tmp_path / "sorter", surface, policy)))

    shown = bare("pack", "show", "sorter")
    assert [line.split() for line in shown.out.splitlines()[-7:]] == [
        [],
        ["COMMAND", "OPERATION", "LAND", "CONFIRM"],
        ["sorter.save", "write", "personal", "yes"],
        ["sorter.sort", "read", "personal", "no"],
        [],
        ["TRIGGER", "LAND", "SUMMARY"],
        ["file.sorted", "personal", "A", "file", "was", "sorted."],
    ]
    assert shown.err.startswith("warning: sorter: sort is not allowed")
    assert "warnings" not in shown.out
    told = bare("pack", "show", "sorter", "--json").json
    assert [len(told[name]) for name in ("warnings", "commands", "triggers", "kept")] == [1, 2, 1, 0]


def test_installing_needs_the_grant_and_a_sound_pack(mail, tmp_path, monkeypatch):
    """The exact denial; a pack that fails changes nothing."""
    (tmp_path / "mail" / "policy.json").write_text("{")
    assert mail("pack", "install", str(tmp_path / "mail")).code == 2
    assert mail.json("pack", "show", "mail")["generation"] == 1
    assert mail("pack", "install", str(tmp_path / "mail"), "--allow-bin", "git").code == 2
    act_as(mail, monkeypatch, "ana")
    denied = mail("pack", "install", str(tmp_path / "mail"))
    assert (denied.code, denied.out) == (1, "")
    assert denied.err == "error: denied: missing pack.install\n"


def test_activations(mail, tmp_path):
    """The file for the adapter is private, the secret not printed; twice is the same one; its end takes the file."""
    row = mail.json("activate", "mail", "--workspace", str(tmp_path))
    file = mail.home / "activations" / f"{row['id']}.json"

    assert (row["file"], stat.S_IMODE(file.stat().st_mode)) == (str(file), 0o600)
    assert json.loads(file.read_text())["secret"] not in mail("activate", "mail", "--workspace", str(tmp_path)).out
    assert mail.json("activate", "mail", "--workspace", str(tmp_path))["id"] == row["id"]
    assert mail.json("activate", "mail", "--project", "apollo")["id"] != row["id"]
    assert mail.json("deactivate", row["id"])["revoked_at"] is not None
    assert not file.exists()
    assert mail("activate", "nosuchpack").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("principal", "add", "zoe"),
        ("principal", "disable", "ana"),
        ("session", "create", "ana"),
        ("project", "add", "apollo"),
        ("grant", "add", "ana", "pack.install"),
        ("sink", "add", "log", "console"),
        ("sink", "pause", "inbox"),
    ],
    ids=" ".join,
)
def test_provisioning_needs_an_operator(mail, monkeypatch, arguments):
    """Under one's own session: the exact denial, exit 1."""
    act_as(mail, monkeypatch, "ana")

    done = mail(*arguments)

    assert (done.code, done.out, done.err) == (1, "", "error: denied: requires an operator\n")


def test_every_change_and_denial_is_in_the_audit(mail, monkeypatch):
    """`audit tail` shows who did what, newest last; `audit verify` finds the chain whole."""
    mail.json("project", "add", "apollo")
    act_as(mail, monkeypatch, "ana")
    mail("project", "add", "zeus")

    lines = mail.json("audit", "tail", "--lines", "3")["items"]

    told = [(line["action"], line["ok"], line["principal"], line["reason"]) for line in lines]
    assert told == [
        ("project.add", True, "operator", None),
        ("session.create", True, "operator", None),
        ("project.add", False, "ana", "denied: requires an operator"),
    ]
    assert "refused  project.add" in mail("audit", "tail").out
    report = mail.json("audit", "verify")
    assert (report["ok"], report["problems"], report["verified"]) == (True, [], report["lines"])


def test_a_changed_audit_is_told(mail):
    """One byte of one line: exit 1, the kind, the file and the line."""
    file = mail.home / "audit.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"operator"', b'"opexator"', 1))

    done = mail("audit", "verify")
    report = mail("audit", "verify", "--json")

    assert (done.code, report.code, report.json["ok"]) == (1, 1, False)
    assert "NOT whole" in done.out
    assert "changed: audit.jsonl line 1: " in done.out


def test_there_is_no_audit_before_init(bare):
    """Nothing to tail, nothing to verify, and no folder is made by asking."""
    assert bare.json("audit", "tail") == {"v": 1, "items": []}
    assert bare("audit", "verify").code == 1
    assert not bare.home.exists()


def test_health_without_a_server_is_bad(cli):
    """Exit 1; each finding is a line, and an item in JSON."""
    people, programs = cli("health"), cli("health", "--json")

    findings = {finding["name"]: finding["ok"] for finding in programs.json["findings"]}
    assert (people.code, programs.code, programs.json["ok"]) == (1, 1, False)
    assert (findings["redis"], findings["database"], findings["audit"]) == (False, True, True)
    assert [line.split()[0] for line in people.out.splitlines()[1:]] == [
        "ok" if ok else "bad" for ok in findings.values()
    ]


def test_status_counts(cli):
    """A fresh tenant has nothing; what waits is unknown without a server."""
    row = cli.json("status")

    assert (row["tenant"], row["events"], row["deliveries"], row["waiting"]) == ("default", 0, {}, None)
    shown = cli("status")
    assert (shown.code, shown.err.startswith("warning: what waits on the stream is not known")) == (0, True)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "SENSE_REDIS_URL: is not set (set it, or run `sense-worker up` with a server of its own)"),
        ({"SENSE_REDIS_URL": "redis://127.0.0.1:1"}, "the key file is missing"),
        (
            {"SENSE_REDIS_URL": "redis://127.0.0.1:1", "SENSE_SECRET_KEYS": "A" * 43 + "="},
            "there is no database at",
        ),
    ],
    ids=["no server", "no keys", "no database"],
)
def test_a_worker_that_cannot_work_does_not_start(bare, monkeypatch, settings, line):
    """What no restart mends is one line and an exit code, not a loop."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    done = bare("worker")

    assert (done.code, line in done.err, done.err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("arguments", "empty"),
    [
        (("deliveries", "list"), "no deliveries"),
        (("inbox", "list"), "the inbox is empty"),
        (("dead", "list"), "no dead entries"),
        (("project", "list"), "no projects"),
        (("route", "list"), "no routes; `sense-worker route add PACK REF SINK`"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_empty_listing_says_so(cli, arguments, empty):
    """A sentence for people, no items for programs."""
    assert cli(*arguments).out == f"{empty}\n"
    assert cli.json(*arguments) == {"v": 1, "items": []}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("deliveries", "list", "--state", "lost"), 2),
        (("deliveries", "list", "--event", "xyz"), 2),
        (("deliveries", "show", "0"), 1),
        (("dead", "show", "0-0"), 1),
        (("explain", "0" * 32), 1),
        (("explain", "what?"), 1),
        (("publish", "new_item"), 2),
        (("publish", "new_item", "--activation", "act_0123456789abcdef"), 1),
        (("publish", "new_item", "--activation", "/nonexistent"), 2),
        (("publish", "new_item", "--data", "[1]"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_not_there_or_cannot_be_meant_is_one_line(cli, arguments, code):
    """Nothing on standard output, one line on standard error."""
    done = cli(*arguments)

    assert (done.code, done.out, done.err.count("\n"), done.err.startswith("error: ")) == (code, "", 1, True)


def test_a_jsonl_sink_whose_folder_is_not_there_is_refused_when_it_is_added(mail, tmp_path):
    """Not at the first delivery: the error names the folder and the way out; once it is made, the sink is taken."""
    option = f"path={tmp_path}/none/log.jsonl"
    done = mail("sink", "add", "log", "jsonl", "--option", option)

    assert (done.code, done.out) == (2, "")
    folder = f"{tmp_path}/none"
    assert done.err == f"error: options.path: there is no folder {folder} (make it first: mkdir -p {folder})\n"
    assert mail.ids("sink", "list", field="name") == ["inbox"]
    (tmp_path / "none").mkdir()
    assert mail.json("sink", "add", "log", "jsonl", "--option", option)["fault"] is None


def test_a_sink_whose_kind_is_not_available_is_listed_with_the_reason(mail, monkeypatch):
    """Its plugin is gone or left out: the list says so, to people and programs, and says nothing of sound sinks."""
    assert "FAULT" not in mail("sink", "list").out
    registry = Registry()
    registry.register(Pager)
    with Operator.open(Settings.load({"HCP_HOME": str(mail.home)}), registry=registry) as operator:
        operator.add_sink("ana-pager", "pager")
    broken = Registry()
    broken._faults = (Fault("pager", "zz-pager 1.0", "ImportError: no module named pager"),)
    monkeypatch.setattr(Registry, "load", lambda *_, **__: broken)

    found = {one["name"]: one["fault"] for one in mail.json("sink", "list")["items"]}

    assert found["inbox"] is None
    assert "'pager' is left out" in found["ana-pager"]
    assert "ImportError: no module named pager" in found["ana-pager"]
    assert "no module named pager" in mail("sink", "list").out


class Pager(SinkBase):
    """A plugin of this process."""

    kind = "pager"

    def deliver(self, batch):
        raise NotImplementedError(batch)


def test_a_chain_is_counted_in_words_that_fit(cli):
    """One line is a line, one anchor an anchor."""
    assert "1 of 1 line verified, 0 anchors" in cli("audit", "verify").out
    cli("principal", "add", "ana")
    assert "2 of 2 lines verified, 1 anchor\n" in cli("audit", "verify").out
