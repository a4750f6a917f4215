"""Who acts: the session of a file, looked at afresh for every change, and recorded with it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.fernet import Fernet

from runtime_core.errors import AuditUnavailable, Conflict, Denied, HcpError, NotFound, SettingsError, UsageError
from sense_worker.operator import Acting, Operator
from sense_worker.settings import Settings
from sense_worker.storage.schema import GRANT, PRINCIPAL, SESSION, SINK, TENANT
from sense_worker.vault import Vault

ENDS = {
    "denied: session revoked": (SESSION, {"revoked_at": 1}),
    "denied: session expired": (SESSION, {"expires_at": 1}),
    "denied: principal disabled": (PRINCIPAL, {"disabled_at": 1}),
}


def test_a_second_run_of_init_changes_nothing(world):
    """Init makes everything once; again it makes nothing, moves no version and writes no line."""
    world.forget()
    before = world.version()
    file = (world.home / "t-red.session").read_bytes()

    assert Operator.initialize(world.settings, tenant="t-red").created == ()
    assert (world.version(), world.audited()) == (before, [])
    assert (world.home / "t-red.session").read_bytes() == file


def test_init_makes_an_operator_who_may_install(world):
    """A tenant begins with its operator, its session, the grant to install, and an inbox."""
    made = Operator.initialize(world.settings)

    assert made.created == ("tenant", "principal", "grant", "sink inbox", "session")
    assert made.session_file == str(world.home / "operator.session")
    with Operator.open(world.settings) as operator:
        acting = operator.acting
        assert acting == Acting("default", "operator", acting.session_id, operator=True)
        assert [(one.principal, one.capability, one.pack_id) for one in operator.list_grants()] == [
            ("operator", "pack.install", "*")
        ]
        assert [(one.name, one.kind, one.audience) for one in operator.list_sinks()] == [("inbox", "inbox", "tenant")]


def test_secrets_lie_in_files_of_their_owner_alone(world):
    """Home, keys, session files and activation files are closed to others; no secret is in the database in clear."""
    world.operator.install_pack(world.pack())
    activation = world.operator.activate("mail")
    session = json.loads((world.home / "t-red.session").read_text())

    assert world.home.stat().st_mode & 0o777 == 0o700
    for file in ("secret.keys", "t-red.session", f"activations/{activation.id}.json"):
        assert (world.home / file).stat().st_mode & 0o777 == 0o600
    (row,) = world.rows(SESSION)
    assert bytes(row.secret) != session["secret"].encode()
    assert Vault.load(world.settings).open(bytes(row.secret)) == session["secret"].encode()


def test_many_may_run_init_at_once(tmp_path, empty_database_urls):
    """Six inits of one empty database at the same moment all succeed, and make one of each."""
    settings = Settings.load({"HCP_HOME": str(tmp_path / "home"), "SENSE_DATABASE_URL": empty_database_urls()})
    together = threading.Barrier(6)

    def init(_number: int) -> tuple[str, ...]:
        together.wait()
        return Operator.initialize(settings).created

    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(init, range(6)))

    assert sorted(name for one in made for name in one) == sorted(
        ["keys", "tenant", "principal", "grant", "sink inbox", "session"]
    )
    with Operator.open(settings) as operator:
        assert len(operator.list_sessions()) == 1


@pytest.mark.parametrize("end", [{"revoked_at": 1}, {"expires_at": 1}, None])
def test_init_gives_a_lost_operator_a_session_again(world, end):
    """Where the file's session has ended, or is of another database, init issues one and writes the file anew."""
    file = world.home / "t-red.session"
    if end is None:
        file.write_text(json.dumps({**json.loads(file.read_text()), "session_id": "ses_of_another_database"}))
    else:
        world.change(SESSION, **end)

    assert Operator.initialize(world.settings, tenant="t-red").created == ("session",)
    assert world.acting(file).acting.principal == "operator"


@pytest.mark.parametrize("tenant", ["t-red", "t-new"])
def test_init_writes_nothing_under_keys_that_open_nothing(world, tenant):
    """Where the key file is lost or another's, init makes no new one, no tenant and no audit line: it says so."""
    keys, session = world.home / "secret.keys", world.home / "t-red.session"
    kept = keys.read_bytes()
    session.unlink()
    world.forget()

    keys.unlink()
    with pytest.raises(SettingsError, match=r"secret\.keys: the key file is missing, and what the database holds"):
        Operator.initialize(world.settings, tenant=tenant)
    assert not keys.exists()
    keys.write_bytes(Fernet.generate_key())
    keys.chmod(0o600)
    with pytest.raises(HcpError, match="no key opens it"):
        Operator.initialize(world.settings, tenant=tenant)

    keys.write_bytes(kept)
    assert (world.count(TENANT), world.audited(), session.exists()) == (1, [], False)


def test_init_takes_nobody_elses_file_or_name(world, ana):
    """A principal that is no operator stays one, and the file of another operator's session is not overwritten."""
    before = (world.home / "t-red.session").read_bytes(), world.count(SESSION)

    with pytest.raises(Conflict, match="'ana' exists and is no operator"):
        Operator.initialize(world.settings, tenant="t-red", principal="ana")
    with pytest.raises(Conflict, match="holds the session of operator of t-red"):
        Operator.initialize(world.settings, tenant="t-red", principal="another")

    assert ((world.home / "t-red.session").read_bytes(), world.count(SESSION)) == before


@pytest.mark.parametrize("tenant", ["", "T-red", "../x", "a/b", "x" * 65, "t red", "t\nred", ".x", "operator", "*"])
def test_init_refuses_a_name_that_is_none(tmp_path, tenant):
    """A tenant's name is a plain word, for it names files, streams and lanes; nothing is made for another."""
    settings = Settings.load({"HCP_HOME": str(tmp_path / "home")})

    with pytest.raises(UsageError, match="tenant"):
        Operator.initialize(settings, tenant=tenant)
    assert not settings.home.exists()


def test_init_names_a_home_that_cannot_be_made(tmp_path):
    """A file in the place of the home is one clear line."""
    (tmp_path / "home").write_text("")

    with pytest.raises(SettingsError, match=r"HCP_HOME: .*/home: File exists"):
        Operator.initialize(Settings.load({"HCP_HOME": str(tmp_path / "home")}))


@pytest.mark.spec("9.1.2")
@pytest.mark.spec("9.6.3")
@pytest.mark.parametrize("text", ENDS)
def test_a_session_that_ended_changes_nothing(world, ana, text):
    """Revoked, expired or of a disabled principal: denied by that text at the next change, recorded with who it was."""
    world.operator.install_pack(world.pack())
    table, values = ENDS[text]
    own = table.c.principal == "ana" if table is SESSION else table.c.id == "ana"
    world.change(table, own, **values)
    world.forget()
    before = world.version()

    with pytest.raises(Denied) as denied:
        ana.add_route("mail", "new_item", "inbox")

    assert str(denied.value) == text
    assert (world.version(), world.audited()) == (before, [("route.add", False, "ana", text)])
    with pytest.raises(Denied):
        ana.list_routes()


@pytest.mark.spec("9.1.2")
@pytest.mark.case("C13")
def test_who_acts_is_told_by_the_rows_not_by_the_file(world, ana):
    """A session file that was edited to name the operator acts as its own principal all the same."""
    file = world.folder / "t-red-ana.session"
    file.write_text(json.dumps({**json.loads(file.read_text()), "principal": "operator", "operator": True}))
    world.forget()
    forged = world.acting(file)

    assert (forged.acting.principal, forged.acting.operator) == ("ana", False)
    with pytest.raises(Denied, match="requires an operator"):
        forged.add_principal("eve")
    assert world.audited() == [("principal.add", False, "ana", "denied: requires an operator")]


@pytest.mark.spec("9.2.1")
def test_a_session_that_is_not_shown_whole_is_nobodys(world, ana):
    """A wrong secret, an unknown id and another tenant's name are told the same way, and recorded as nobody's."""
    world.tenant("t-blue")
    file = world.folder / "t-red-ana.session"
    whole = json.loads(file.read_text())
    world.forget()
    for field, wrong in (("secret", "0" * 64), ("session_id", "ses_0"), ("tenant", "t-blue")):
        file.write_text(json.dumps({**whole, field: wrong}))
        with pytest.raises(UsageError, match="session: is unknown here"):
            world.acting(file).add_route("mail", "new_item", "inbox")

    assert world.audited() == [("route.add", False, None, "session unknown")] * 3


def test_a_file_that_is_no_session_is_named(world):
    """Whatever else stands in the file: one line with its place and the way out."""
    file = world.folder / "odd.session"
    file.touch(mode=0o600)
    whole = json.loads((world.home / "t-red.session").read_text())
    lacking = [
        json.dumps({**whole, name: value}) for name, value in (("v", True), ("v", 2), ("secret", ""), ("tenant", 1))
    ]
    for text in ("", "{}", '{"v": 1}', '{"v": 1, "v": 1}', "[]", "x" * 70_000, *lacking):
        file.write_text(text)

        with pytest.raises(UsageError, match=r"odd\.session.*sense-worker init") as refused:
            world.acting(file)
        assert "\n" not in str(refused.value)


def test_a_session_file_that_others_may_read_is_refused(world):
    """A secret that others can read is none; a missing file, a folder and a pipe are named too."""
    open_file = world.home / "t-red.session"
    open_file.chmod(0o640)

    with pytest.raises(UsageError, match="others may read or change it"):
        world.acting(open_file)
    for place in (world.folder / "none", world.folder):
        with pytest.raises(UsageError, match="sense-worker init"):
            world.acting(place)


def test_an_operator_does_not_open_a_schema_it_cannot_know(tmp_path, world):
    """Without tables, commands name the way out instead of failing in SQL."""
    (tmp_path / "empty.db").touch()
    empty = {"HCP_HOME": str(world.home), "SENSE_DATABASE_URL": f"sqlite:///{tmp_path / 'empty.db'}"}

    with pytest.raises(SettingsError, match="has no tables yet"):
        Operator.open(Settings.load(empty), session_file=world.home / "t-red.session")


CHANGES = {
    "principal.add": lambda one: one.add_principal("bob"),
    "principal.disable": lambda one: one.disable_principal("ana"),
    "principal.enable": lambda one: one.enable_principal("ana"),
    "session.create": lambda one: one.create_session("ana"),
    "session.revoke": lambda one: one.revoke_session("ses_0"),
    "project.add": lambda one: one.add_project("apollo"),
    "project.add_member": lambda one: one.add_member("apollo", "ana"),
    "project.remove_member": lambda one: one.remove_member("apollo", "ana"),
    "grant.add": lambda one: one.add_grant("ana", "sense.enable"),
    "grant.revoke": lambda one: one.revoke_grant("grt_0"),
    "sink.add": lambda one: one.add_sink("log", "memory"),
    "sink.pause": lambda one: one.pause_sink("inbox"),
    "sink.resume": lambda one: one.resume_sink("inbox"),
    "sink.remove": lambda one: one.remove_sink("inbox"),
    "route.add": lambda one: one.add_route("mail", "new_item", "inbox", owner="operator"),
}


@pytest.mark.spec("9.4.4")
@pytest.mark.spec("9.6.3")
def test_provisioning_needs_an_operator(world, ana):
    """Nobody but an operator provisions; each refusal is recorded, and nothing is changed."""
    world.operator.install_pack(world.pack())
    world.forget()
    tables = (PRINCIPAL, SESSION, GRANT, SINK, TENANT)
    before = [world.count(table) for table in tables], world.version()

    for change in CHANGES.values():
        with pytest.raises(Denied) as denied:
            change(ana)
        assert str(denied.value) == "denied: requires an operator"

    assert world.audited() == [(action, False, "ana", "denied: requires an operator") for action in CHANGES]
    assert ([world.count(table) for table in tables], world.version()) == before


def test_a_change_without_its_audit_line_does_not_happen(world):
    """While the audit cannot be written nothing is changed; afterwards the same call succeeds."""
    world.settings.audit_file.rename(world.home / "audit.old")
    world.settings.audit_file.mkdir()
    before = world.version()

    with pytest.raises(AuditUnavailable):
        world.operator.add_principal("ana")
    assert (world.version(), world.count(PRINCIPAL)) == (before, 1)

    world.settings.audit_file.rmdir()
    (world.home / "audit.old").rename(world.settings.audit_file)
    world.operator.add_principal("ana")
    assert (world.version(), world.count(PRINCIPAL)) == (before + 1, 2)


def test_a_session_file_that_cannot_be_written_makes_no_session(world, ana):
    """A session whose secret would be lost is not made."""
    before = world.count(SESSION)
    for place in (world.folder, world.home / "secret.keys" / "x.session"):
        with pytest.raises(HcpError, match="cannot be written"):
            world.operator.create_session("ana", file=place)

    assert world.count(SESSION) == before


def test_a_revoked_session_is_denied_from_the_next_call_on(world, ana):
    """Revoking ends a session for everything; another session of the same principal goes on."""
    other = world.operator.create_session("ana", file=world.folder / "other.session")
    revoked = world.operator.revoke_session(ana.acting.session_id)

    assert revoked.revoked_at is not None
    with pytest.raises(Denied, match="session revoked"):
        _ = ana.acting
    assert world.acting(world.folder / "other.session").acting.session_id == other.id
    assert world.operator.revoke_session(revoked.id) == revoked
    with pytest.raises(NotFound):
        world.operator.revoke_session("ses_0")


def test_a_session_has_an_end(world, ana):
    """Neither a past end nor one nobody lives to see."""
    for seconds in (0, -1, 1e12, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="expires: must be between"):
            world.operator.create_session("ana", expires_in_s=seconds)
    assert [one.id for one in ana.list_sessions()] == [ana.acting.session_id]


def test_two_operators_changing_at_once_lose_nothing(world):
    """Changes of one tenant come one after the other: each has its version and its line."""
    world.forget()
    before = world.version()
    names = [f"p-{number}" for number in range(8)]
    operators = [world.acting(world.home / "t-red.session") for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda at: operators[at % 4].add_principal(names[at]), range(8)))

    assert [one.id for one in world.operator.list_principals()] == ["operator", *names]
    assert world.version() == before + 8
    assert len(world.audited()) == 8


def test_operators_entering_the_same_at_once_enter_it_once(world):
    """What is looked at cannot change before it is acted upon: one principal, one line, and no error for the others."""
    world.forget()
    operators = [world.acting(world.home / "t-red.session") for _ in range(4)]
    together = threading.Barrier(4)

    def enter(one: Operator) -> str:
        together.wait()
        return one.add_principal("ana").id

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(enter, operators)) == ["ana"] * 4
    assert world.audited() == [("principal.add", True, "operator", None)]
