"""`connect`, `disconnect`, `availability`: what a pack needs before its commands run, and who may give it."""

from __future__ import annotations

import json

import pytest

from sense_worker.invoker import Invoker
from sense_worker.settings import Settings
from tests.notes_pack import SECRET
from tests.sense_worker.cli.notes_home import LOGIN, allow, audited, install, lines_of


@pytest.mark.spec("1.6.connect")
@pytest.mark.spec("9.6.4")
def test_connecting_keeps_the_credential_and_shows_only_its_identity(notes):
    """The secret is in no output, log line, audit line or row; disconnecting forgets it and says whose it was."""
    done = notes("connect", "notes", *LOGIN, "--json")

    assert (done.code, done.json["result"]) == (0, {"identity": "ana@service"})
    at_rest = b"".join(path.read_bytes() for path in notes.home.rglob("*") if path.is_file() and path.suffix != ".sock")
    assert SECRET.encode() not in at_rest
    assert SECRET not in done.out + done.err
    before = lines_of(notes.home)
    gone = notes.json("disconnect", "notes")
    assert (gone["identity"], gone["consent"]) == ("ana@service", "pack:notes")
    assert notes("exec", "notes", "notes.list").err == "error: not connected: notes\n"
    line = json.loads((notes.home / "audit.jsonl").read_text().splitlines()[before])
    assert (line["action"], line["principal"], line["binding"]) == ("disconnect", "operator", "ana@service")
    assert "was not connected" in notes("disconnect", "notes").out


@pytest.mark.spec("9.4.3")
@pytest.mark.parametrize(
    ("held", "error"),
    [
        (("verb.exec.read", "verb.exec.write"), "denied: missing pack.connect"),
        (("pack.connect", "verb.exec.read"), "denied: missing verb.exec.write for notes.login"),
        ((), "denied: missing pack.connect"),
    ],
)
def test_connecting_needs_both_grants_in_this_order(cli, tmp_path, held, error):
    """A write grant does not connect, and pack.connect does not write; nothing is kept."""
    install(cli, tmp_path)
    allow(cli, axes=held)
    cli.json("activate", "notes")

    assert cli("connect", "notes", *LOGIN) == (1, "", f"error: {error}\n")
    assert cli.json("availability", "notes")["connected"] is False


def test_connect_says_what_there_is_to_connect(notes, tmp_path):
    """No pack, a pack without a connect command, a wrong one."""
    install(notes, tmp_path, pack_id="free", mode="public", hub="none")

    assert (notes("connect", "nothing").code, notes("connect", "free").code) == (1, 1)
    assert "free needs no connection" in notes("connect", "free").err
    assert "it has: notes.login" in notes("connect", "notes", "--verb", "notes.list").err
    assert notes("disconnect", "nothing").code == 1


@pytest.mark.spec("1.6.availability")
def test_availability_tells_each_no_with_its_reason(notes, tmp_path):
    """Installed, activated, connected, and of every command whether it would run."""
    nothing = notes.json("availability", "mail")
    assert (nothing["installed"], nothing["reason"]) == (False, "pack not installed: mail")
    before = notes.json("availability", "notes")
    assert [before[name] for name in ("installed", "activated", "connected")] == [True, True, False]
    reasons = {one["verb_key"]: one["reason"] for one in before["commands"]}
    assert reasons == {
        "notes.login": None,
        "notes.list": "not connected: notes",
        "notes.add": "not connected: notes",
        "notes.shared": "denied: privacy.land brain requires project_id",
        "notes.where": "denied: privacy.land local requires a workspace",
        "notes.break": "not connected: notes",
    }
    notes("connect", "notes", *LOGIN)
    after = notes.json("availability")["items"]
    assert [(one["pack_id"], one["connected"]) for one in after] == [("notes", True)]
    executable = [one["verb_key"] for one in after[0]["commands"] if one["executable"]]
    assert executable == ["notes.login", "notes.list", "notes.add", "notes.break"]
    people = notes("availability").out
    assert "notes.shared: denied: privacy.land brain requires project_id" in people
    assert "notes  installed  activated  connected" in people


@pytest.mark.spec("9.8.mothership")
@pytest.mark.parametrize("hub", ["keyring", "local-credential"])
def test_a_mothership_binding_needs_an_operator_or_an_elevation(cli, tmp_path, monkeypatch, hub):
    """The operator may, ana may not, ana with an elevation for the pack may, until it is revoked."""
    install(cli, tmp_path, mode="mothership", hub=hub)
    cli.json("principal", "add", "ana")
    for principal in ("operator", "ana"):
        allow(cli, principal)
    cli.json("activate", "notes")
    denied = "error: denied: mothership binding requires an operator\n"
    assert cli("connect", "notes", *LOGIN).code == 0
    assert cli("exec", "notes", "notes.list").code == 0

    ana = cli.json("session", "create", "ana")["file"]
    monkeypatch.setenv("SENSE_SESSION_FILE", ana)
    cli.json("activate", "notes")
    assert [cli("connect", "notes", *LOGIN).err, cli("exec", "notes", "notes.list").err] == [denied] * 2
    assert {one["reason"] for one in cli.json("availability", "notes")["commands"] if "login" in one["verb_key"]} == {
        denied[len("error: ") : -1]
    }

    monkeypatch.delenv("SENSE_SESSION_FILE")
    elevation = cli.json("grant", "add", "ana", "mothership.elevate", "--pack", "notes", "--expires", "1h")["id"]
    monkeypatch.setenv("SENSE_SESSION_FILE", ana)
    assert cli("exec", "notes", "notes.list").err == "error: not connected: notes\n"  # nobody else's credential
    assert (cli("connect", "notes", *LOGIN).code, cli("exec", "notes", "notes.list").code) == (0, 0)

    monkeypatch.delenv("SENSE_SESSION_FILE")
    cli.json("grant", "revoke", elevation)
    monkeypatch.setenv("SENSE_SESSION_FILE", ana)
    assert cli("exec", "notes", "notes.list").err == denied


@pytest.mark.spec("1.2.plane")
def test_a_control_plane_pack_is_for_operators(cli, tmp_path, monkeypatch):
    """Whoever else has every grant neither activates, connects nor runs it."""
    install(cli, tmp_path, plane="control")
    cli.json("principal", "add", "ana")
    for principal in ("operator", "ana"):
        allow(cli, principal)
    cli.json("activate", "notes")
    assert (cli("connect", "notes", *LOGIN).code, cli("exec", "notes", "notes.list").code) == (0, 0)

    monkeypatch.setenv("SENSE_SESSION_FILE", cli.json("session", "create", "ana")["file"])
    denied = "error: denied: control plane requires an operator\n"
    assert cli("activate", "notes").err == denied
    assert cli("exec", "notes", "notes.list").err == "error: pack not activated: notes\n"


@pytest.mark.spec("1.4.binding-modes")
@pytest.mark.spec("1.4.hubs")
@pytest.mark.parametrize(
    ("mode", "hub"),
    [
        ("public", "public"),
        ("public", "none"),
        ("user", "keyring"),
        ("user", "local-credential"),
        ("local", "local-credential"),
        ("mothership", "keyring"),
        ("mothership", "local-credential"),
        ("mock", "none"),
    ],
)
def test_every_mode_runs_with_its_hub(cli, tmp_path, monkeypatch, mode, hub):
    """Those that need a credential fail closed until it is there, and get it in the environment they name."""
    monkeypatch.setenv("SENSE_ALLOW_MOCK", "true")
    install(cli, tmp_path, mode=mode, hub=hub)
    allow(cli)
    cli.json("activate", "notes")
    free = mode in {"public", "mock"}

    first = cli("exec", "notes", "notes.list")
    assert first == (
        (0, "token of 0 characters, at most all\n", "") if free else (1, "", "error: not connected: notes\n")
    )
    assert cli.json("availability", "notes")["connected"] is free
    if not free:
        assert cli("connect", "notes", *LOGIN).code == 0
        assert cli("exec", "notes", "notes.list").out == f"token of {len(SECRET)} characters, at most all\n"
    bindings = {line["binding"] for line in audited(cli.home) if line["key"] == "notes.list" and line["ok"]}
    assert bindings == {None if free else "ana@service"}


@pytest.mark.spec("1.4.hubs")
def test_a_hub_that_breaks_denies_before_the_tool_runs(notes):
    """Keys that open nothing any more: `binding unavailable`, and availability says the same."""
    notes("connect", "notes", *LOGIN)
    before = lines_of(notes.home)
    with Invoker.open(Settings.load({"HCP_HOME": str(notes.home)})) as invoker:
        database = invoker._ports.database
        with database.write() as connection:
            connection.exec_driver_sql("UPDATE sense_credential SET fields = x'00'")

    assert notes("exec", "notes", "notes.list").err.splitlines()[-1] == "error: binding unavailable: keyring"
    assert notes.json("exec", "notes", "notes.login", *LOGIN)["ok"] is True  # connected anew
    assert audited(notes.home, since=before)[0]["reason"] == "binding unavailable: keyring"
