"""Authority from SQL: what each row becomes, of which tenant, and that no change is missed or starved."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from runtime_core.errors import HcpError, NotFound
from runtime_core.grants import Grant
from runtime_core.identity import Activation, Credential, Principal, Route, Session, Sink
from sense_worker.storage import tables
from sense_worker.storage.authorities import Authorities
from sense_worker.storage.authority import SqlAuthoritySource, bump_authority, versions
from sense_worker.storage.engine import Database
from sense_worker.vault import Vault
from sinks.registry import Registry
from tests.provision import POLICY, SURFACE, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from concurrent.futures import ThreadPoolExecutor as Pool

KEYS = [b"k" * 32]
KINDS = "console, inbox, jsonl, memory, notify, redis_stream, webhook"
TELEGRAPH = f"sink cannot be opened: kind: there is no sink kind 'telegraph' (kinds: {KINDS})"


@pytest.fixture
def vault() -> Vault:
    """A vault with one key."""
    return Vault(KEYS)


@pytest.fixture
def red(database: Database, vault: Vault) -> Rows:
    """Tenant t-red."""
    return Rows(database, vault)


@pytest.fixture
def blue(database: Database, vault: Vault, red: Rows) -> Rows:
    """Tenant t-blue, beside t-red."""
    return Rows(database, vault, "t-blue")


@pytest.fixture
def source(database: Database, vault: Vault) -> SqlAuthoritySource:
    """The source over the whole database."""
    return SqlAuthoritySource(database, Registry(), vault)


@pytest.fixture
def threads() -> Iterator[Pool]:
    """Threads for transactions that wait for each other."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        yield pool


def version(database: Database, tenant: str) -> int:
    """Return the version of a tenant now."""
    with database.read() as connection:
        return versions(connection, [tenant], lock=False)[tenant]


def bump(database: Database, tenant: str = "t-red") -> int:
    """Raise a tenant's version in a transaction of its own."""
    with database.write() as connection:
        return bump_authority(connection, tenant)


def test_a_change_raises_the_version_of_its_own_tenant(database, blue):
    """Each bump counts one up and is visible when it has committed; the other tenant's version stands."""
    before = version(database, "t-red"), version(database, "t-blue")

    assert bump(database) == before[0] + 1
    assert bump(database) == before[0] + 2
    assert (version(database, "t-red"), version(database, "t-blue")) == (before[0] + 2, before[1])


def test_a_bump_of_a_change_that_rolled_back_is_none(database, red):
    """A transaction that fails after its bump leaves the version as it was."""
    before = version(database, "t-red")

    with contextlib.suppress(ZeroDivisionError), database.write() as connection:
        bump_authority(connection, "t-red")
        raise ZeroDivisionError

    assert version(database, "t-red") == before


def test_a_tenant_that_is_not_there_has_no_version(database, red):
    """An unknown tenant has no version, and nothing of it can be changed."""
    with database.read() as connection:
        assert versions(connection, ["t-none", "t-red"], lock=False).keys() == {"t-red"}
    with pytest.raises(NotFound, match="there is no tenant 't-none'"):
        bump(database, "t-none")


def test_a_change_waits_for_a_reader_that_holds_the_version(database, red, threads):
    """While a transaction judges by a locked version, no change of that tenant commits."""
    with database.write() as reader:
        held = versions(reader, ["t-red"], lock=True)["t-red"]
        change = threads.submit(bump, database)
        wait_until_it_waits(database, change)

        assert versions(reader, ["t-red"], lock=True)["t-red"] == held
        assert not change.done()
    assert change.result(timeout=20) == held + 1


def test_a_waiting_change_is_not_passed_by_later_readers(postgresql_url, vault, threads):
    """A reader that comes while a change waits gets its turn after it: readers that overlap cannot starve it."""
    database = Database(postgresql_url)
    Rows(database, vault)

    def read() -> int:
        with database.write() as connection:
            return versions(connection, ["t-red"], lock=True)["t-red"]

    with database.write() as first:
        held = versions(first, ["t-red"], lock=True)["t-red"]
        change = threads.submit(bump, database)
        wait_until_it_waits(database, change)
        later = threads.submit(read)
        wait_until_it_waits(database, change, later)
    assert change.result(timeout=20) == held + 1
    assert later.result(timeout=20) == held + 1
    database.dispose()


def test_two_readers_hold_a_version_at_once(postgresql_url, vault, threads):
    """Readers do not wait for each other on PostgreSQL; a change of another tenant waits for none of them."""
    database = Database(postgresql_url)
    Rows(database, vault)
    Rows(database, vault, "t-blue")

    with database.write() as one, database.write() as other:
        assert versions(one, ["t-red"], lock=True) == versions(other, ["t-red"], lock=True)
        assert threads.submit(bump, database, "t-blue").result(timeout=20)
    database.dispose()


@pytest.mark.case("C15")
@pytest.mark.spec("9.4.4")
def test_a_revocation_is_seen_by_the_first_claim_after_it(database, red, source):
    """However busy a snapshot was, the first one taken after a revocation has committed denies."""
    red.principal("ana")
    grant = red.grant("ana")
    authorities = Authorities(database, source)

    def allowed() -> bool:
        with database.write() as connection:
            authority = authorities.locked(connection, ["t-red"])["t-red"]
            return authority.grant("ana", "sense.enable", "mail", "new_item", None, 1) is not None

    assert [allowed(), allowed()] == [True, True]
    red.revoke(grant)

    assert [allowed(), allowed()] == [False, False]


def test_a_connection_shows_what_its_transaction_changed(database, vault, red):
    """A source over a connection reads inside that transaction; one over the database reads what has committed."""
    with contextlib.suppress(ZeroDivisionError), database.write() as connection:
        row = {"tenant": "t-red", "id": "bob", "kind": "human", "operator": False, "created_at": 1}
        connection.execute(sa.insert(tables.PrincipalRow).values(**row))

        assert SqlAuthoritySource(connection, Registry(), vault).principal("t-red", "bob") is not None
        assert SqlAuthoritySource(database, Registry(), vault).principal("t-red", "bob") is None
        raise ZeroDivisionError


@pytest.mark.spec("9.2.1")
def test_every_row_is_read_for_its_own_tenant_only(database, red, blue, source):
    """What stands in one tenant is nothing in the other, whatever id is asked for."""
    red.principal("ana")
    red.pack()
    red.activation("act-1", "ana")
    red.grant("ana")
    red.sink("log", "memory")
    red.route("ana")
    red.member("apollo", "ana")

    asked: list[tuple[str, tuple[str, ...]]] = [
        ("activation", ("act-1",)),
        ("session", ("ses-ana",)),
        ("principal", ("ana",)),
        ("grants", ("ana",)),
        ("sink", ("log",)),
        ("members", ("apollo",)),
        ("revision", ("mail",)),
        ("routes", ("mail", "new_item")),
    ]
    found = {name: (getattr(source, name)("t-red", *of), getattr(source, name)("t-blue", *of)) for name, of in asked}

    assert {name for name, (mine, _) in found.items() if not mine} == set()
    assert {name: theirs for name, (_, theirs) in found.items() if theirs} == {}


@pytest.mark.case("C18")
@pytest.mark.spec("9.2.3")
def test_a_foreign_project_and_one_that_exists_nowhere_look_alike(red, blue, source):
    """A principal of both tenants has no project of t-blue in t-red, and an unknown one is as empty."""
    for tenant in (red, blue):
        tenant.principal("ana")
    blue.member("apollo", "ana")

    assert list(source.members("t-red", "apollo")) == list(source.members("t-red", "nowhere")) == []
    assert list(source.members("t-blue", "apollo")) == ["ana"]


def test_who_is_who_is_told_as_the_rows_say(red, source):
    """Principal, session and activation carry the facts of their rows; moments of an end become flags."""
    red.principal("ana")
    red.principal("root", operator=True)
    red.session("ses-old", "ana", expires_at=7)
    secret = red.activation("act-1", "ana", project="apollo")

    assert source.principal("t-red", "ana") == Principal("t-red", "ana", "human", operator=False, disabled=False)
    assert source.principal("t-red", "root") == Principal("t-red", "root", "human", operator=True, disabled=False)
    old = source.session("t-red", "ses-old")
    assert old._replace(credential=Credential(b"")) == Session("ses-old", "t-red", "ana", 7, revoked=False)
    assert len(old.credential.current) == 32
    assert source.activation("t-red", "act-1") == Activation(
        *("act-1", "t-red", "ses-ana", "mail", "apollo", None), revoked=False, credential=Credential(secret)
    )

    red.change(tables.PrincipalRow, {"id": "ana"}, disabled_at=5)
    red.change(tables.SessionRow, {"id": "ses-old"}, revoked_at=5)
    red.change(tables.ActivationRow, {"id": "act-1"}, revoked_at=5)

    found: list[Any] = [source.principal("t-red", "ana"), source.session("t-red", "ses-old")]
    assert [found[0].disabled, found[1].revoked] == [True, True]
    assert source.activation("t-red", "act-1").revoked is True


def test_a_replaced_secret_lives_until_its_end(red, source, vault):
    """The credential of an activation has the current secret and, until its moment, the one before."""
    red.principal("ana")
    before = red.activation("act-1", "ana")
    values = {"secret": vault.seal(b"new"), "previous_secret": vault.seal(before), "previous_until": 100}
    red.change(tables.ActivationRow, {"id": "act-1"}, **values)

    assert source.activation("t-red", "act-1").credential == Credential(b"new", before, 100)


def test_a_secret_that_no_key_opens_is_an_error_and_no_refusal(database, red, source):
    """With a lost key nothing is told to be unknown or unsigned: it is an error, and entries stay where they are."""
    red.principal("ana")
    red.activation("act-1", "ana")
    lost = SqlAuthoritySource(database, Registry(), Vault([b"x" * 32]))

    for look_up in (lambda: lost.activation("t-red", "act-1"), lambda: lost.sink("t-red", "inbox")):
        with pytest.raises(HcpError, match="no key opens it"):
            look_up()


@pytest.mark.spec("9.4.1")
def test_grants_keep_their_scope(red, source):
    """A grant has its pack, keys, project and end; no keys at all is not the same as an empty list."""
    red.principal("ana")
    common = {"principal": "ana", "created_by": "root", "created_at": 1}
    axes = ["pack.install", "pack.connect", "verb.exec.read", "verb.exec.write", "sense.enable", "mothership.elevate"]
    for at, axis in enumerate(axes):
        red.put(tables.GrantRow, id=f"grt-{at}", capability=axis, pack_id="mail", keys=None, **common)
    red.put(tables.GrantRow, id="grt-none", capability="sense.enable", pack_id="*", keys=[], **common)
    red.put(
        tables.GrantRow,
        id="grt-some",
        capability="sense.enable",
        pack_id="mail",
        keys=["a", "b"],
        project="apollo",
        expires_at=9,
        **common,
    )

    assert list(source.grants("t-red", "ana")) == [
        *(Grant(f"grt-{at}", "t-red", "ana", axis, "mail", None, None, None) for at, axis in enumerate(axes)),
        Grant("grt-none", "t-red", "ana", "sense.enable", "*", (), None, None),
        Grant("grt-some", "t-red", "ana", "sense.enable", "mail", ("a", "b"), "apollo", 9),
    ]


def test_a_sink_has_the_traits_of_its_kind_under_its_options(red, source, tmp_path):
    """Partitioned and workspace come from the kind with the options, which are sealed in the row."""
    red.sink("own", "jsonl", {"workspace": True}, audience="principal:ana")
    red.sink("file", "jsonl", {"path": str(tmp_path / "events.jsonl")}, audience="project:apollo")

    assert source.sink("t-red", "inbox") == Sink(
        *("t-red", "inbox", "inbox", "tenant", None), partitioned=True, workspace=False, held=None
    )
    assert source.sink("t-red", "own") == Sink(
        *("t-red", "own", "jsonl", "principal", "ana"), partitioned=False, workspace=True, held=None
    )
    assert source.sink("t-red", "file") == Sink(
        *("t-red", "file", "jsonl", "project", "apollo"), partitioned=False, workspace=False, held=None
    )
    assert source.sink("t-red", "none") is None


@pytest.mark.parametrize(
    ("kind", "values", "held"),
    [
        ("memory", {}, None),
        ("memory", {"paused_at": 5}, "sink paused"),
        ("memory", {"disabled_at": 5, "disabled_reason": "410 Gone"}, "sink disabled: 410 Gone"),
        ("memory", {"paused_at": 5, "disabled_at": 5, "disabled_reason": "410 Gone"}, "sink disabled: 410 Gone"),
        ("telegraph", {}, TELEGRAPH),
        ("telegraph", {"paused_at": 5}, TELEGRAPH),
    ],
)
def test_a_sink_says_why_it_takes_nothing_now(red, source, kind, values, held):
    """Paused, disabled with the reason, or of a kind that this process does not have."""
    red.sink("log", kind)
    if values:
        red.change(tables.SinkRow, {"name": "log"}, **values)

    assert source.sink("t-red", "log").held == held


def test_routes_match_by_ref_or_star_while_they_stand(red, source):
    """A ref finds its own routes and those for all refs, in id order; a removed one is gone, an expired one told."""
    red.principal("ana")
    for name, ref, values in (
        ("rte-3", "new_item", {}),
        ("rte-1", "*", {"expires_at": 7}),
        ("rte-2", "new_item", {"removed_at": 5}),
        ("rte-4", "shared_item", {"project": "apollo"}),
        ("rte-5", "new_item", {"pack_id": "other"}),
    ):
        red.route("ana", ref, id=name, **values)

    assert list(source.routes("t-red", "mail", "new_item")) == [
        Route("rte-1", "t-red", "ana", "mail", "*", "inbox", None, 7),
        Route("rte-3", "t-red", "ana", "mail", "new_item", "inbox", None, None),
    ]
    assert [(route.id, route.project) for route in source.routes("t-red", "mail", "shared_item")] == [
        ("rte-1", None),
        ("rte-4", "apollo"),
    ]


def test_the_newest_revision_is_in_force_until_the_pack_is_removed(red, source):
    """A reinstall replaces what is judged by, whole; a removed pack has no revision, though its rows stay."""
    red.pack()
    first = source.revision("t-red", "mail")
    surface = {**SURFACE, "stimulusTriggers": SURFACE["stimulusTriggers"][:1]}
    red.pack(surface, {**POLICY, "stimuli": {"new_item": POLICY["stimuli"]["new_item"]}})
    second = source.revision("t-red", "mail")
    red.change(tables.PackRow, {"pack_id": "mail"}, generation=None)

    assert (first.generation, len(first.pack.triggers)) == (1, 4)
    assert (second.generation, list(second.pack.triggers)) == (2, ["new_item"])
    assert source.revision("t-red", "mail") is None


def test_a_pack_is_parsed_once_a_process(red, database, vault):
    """Equal bytes are parsed once, whatever version or source asks."""
    red.pack()
    found = [SqlAuthoritySource(database, Registry(), vault).revision("t-red", "mail") for _ in range(2)]

    assert found[0].pack is found[1].pack


def test_a_stored_pack_that_this_release_does_not_accept_is_not_served(red, source, database, caplog):
    """Stricter rules of a newer release take a pack out of force and say so; they break no reader."""
    red.pack({**SURFACE, "title": "Spoilt"})
    with database.write() as connection:
        connection.execute(sa.update(tables.PackRevisionRow).values(policy=b"{}"))

    assert source.revision("t-red", "mail") is None
    assert "pack mail of tenant t-red is not served: policy.json" in caplog.text


def wait_until_it_waits(database: Database, *expected: Future[int]) -> None:
    """Wait until as many transactions as expected are blocked in PostgreSQL; SQLite's wait shows nowhere."""
    if database.kind == "sqlite":
        return
    blocked = sa.text(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    paces = threading.Event()
    for _ in range(2000):
        with database.read() as connection:
            if connection.scalar(blocked) == len(expected):
                return
        assert not any(future.done() for future in expected), "it did not wait"
        paces.wait(0.01)
    raise AssertionError("it never began to wait")
