"""Packs through the operator: who may install, what is refused whole, and what is in force then."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from runtime_core.errors import (
    Conflict,
    Denied,
    HcpError,
    NotFound,
    PackError,
    PackLintError,
    PackParseError,
    UsageError,
)
from sense_worker.operator import Operator
from sense_worker.storage.authority import SqlAuthoritySource
from sense_worker.storage.schema import ACTIVATION, PACK, PRINCIPAL, REVISION, SESSION
from sense_worker.vault import Vault
from sinks.registry import Registry
from tests.provision import POLICY, SURFACE

CASES = Path(__file__).parents[2] / "cases"
CONTROL = {**SURFACE, "plane": "control"}
WRAP: dict[str, Any] = {
    "id": "git",
    "adapter": {"kind": "wrap", "bin": "git"},
    "sandbox": {"bins": ["git"]},
    "verbs": {"git.log": {"summary": "Log", "cli": ["log"]}},
}
WRAP_POLICY = {
    "surface_id": "git",
    "version": 1,
    "verbs": {"git.log": {"operation": "read", "privacy": {"land": "local"}}},
    "stimuli": {},
}
INSTALL = "denied: missing pack.install"
PLANE = "denied: control plane requires an operator"


def in_force(world, pack_id="mail", tenant="t-red"):
    """Return the revision that every worker reads now, through a source of its own."""
    return SqlAuthoritySource(world.database, Registry(), Vault.load(world.settings)).revision(tenant, pack_id)


def everything(world):
    """Return what an install could have left: rows, files of the store, the version."""
    files = sorted(str(path.relative_to(world.home)) for path in (world.home / "packs").rglob("*"))
    return world.count(PACK), world.count(REVISION), files, world.version()


@pytest.mark.spec("1.6.install")
@pytest.mark.spec("1.6.store")
def test_install_places_a_pack_in_the_store(world):
    """The revision is in the database with all its bytes, its copy under the home, and the audit says who did it."""
    world.forget()
    before = world.version()
    source = world.pack()

    view = world.operator.install_pack(source)

    assert (view.pack_id, view.generation, view.plane, view.installed_by) == ("mail", 1, "runtime", "operator")
    assert [(one.ref, one.land) for one in view.triggers] == sorted(
        (ref, entry["privacy"]["land"]) for ref, entry in POLICY["stimuli"].items()
    )
    (row,) = world.rows(REVISION)
    names = ("surface.json", "policy.json", "HARNESS.md")
    assert [bytes(row.surface), bytes(row.policy), bytes(row.harness)] == [
        (source / name).read_bytes() for name in names
    ]
    copy = world.home / "packs" / "t-red" / "mail"
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == {
        name: (source / name).read_bytes() for name in names
    }
    assert world.version() == before + 1
    assert world.audited() == [("pack.install", True, "operator", None)]
    assert [one.pack_id for one in world.operator.list_packs()] == ["mail"]
    assert world.operator.show_pack("mail") == view


def test_installing_the_same_again_changes_nothing(world):
    """Equal bytes and binaries are the revision in force: no generation, no line; only the copy is written anew."""
    first = world.operator.install_pack(world.pack())
    copy = world.home / "packs" / "t-red" / "mail"
    (copy / "policy.json").write_text("edited")
    world.forget()
    before = world.version()

    assert world.operator.install_pack(world.pack()) == first
    assert (world.version(), world.audited(), world.count(REVISION)) == (before, [], 1)
    assert (copy / "policy.json").read_text() == json.dumps(POLICY)


@pytest.mark.spec("9.7.install")
@pytest.mark.spec("9.1.1")
def test_installing_and_removing_need_the_grant_for_that_pack(world, ana):
    """Without `pack.install`, for another pack, or with an expired one: denied, and recorded to whom."""
    bob = world.principal("bob")
    world.operator.add_grant("ana", "pack.install", pack="other")
    world.operator.add_grant("bob", "pack.install", pack="mail")
    world.forget()

    for _ in range(2):
        with pytest.raises(Denied) as denied:
            ana.install_pack(world.pack())
        assert str(denied.value) == INSTALL
    assert bob.install_pack(world.pack()).installed_by == "bob"
    with pytest.raises(Denied, match=INSTALL):
        ana.remove_pack("mail")
    assert bob.remove_pack("mail").pack_id == "mail"

    assert world.audited() == [
        *[("pack.install", False, "ana", INSTALL)] * 2,
        ("pack.install", True, "bob", None),
        ("pack.remove", False, "ana", INSTALL),
        ("pack.remove", True, "bob", None),
    ]


@pytest.mark.spec("1.2.plane")
def test_a_control_plane_pack_needs_an_operator_before_the_grant(world, ana):
    """With or without the grant, good or with lint issues: the plane answers first."""
    bob = world.principal("bob")
    world.operator.add_grant("bob", "pack.install")
    broken = {**POLICY, "stimuli": {}}

    for who in (ana, bob):
        for policy in (POLICY, broken):
            with pytest.raises(Denied) as denied:
                who.install_pack(world.pack(CONTROL, policy))
            assert str(denied.value) == PLANE
    world.operator.install_pack(world.pack(CONTROL))
    with pytest.raises(Denied, match=PLANE):
        bob.remove_pack("mail")
    with pytest.raises(Denied, match=PLANE):
        bob.activate("mail")
    assert world.operator.activate("mail").pack_id == "mail"


BROKEN = {
    "surface": (lambda folder: (folder / "surface.json").write_text("{"), PackParseError),
    "policy": (lambda folder: (folder / "policy.json").write_text('{"version": 1, "version": 1}'), PackParseError),
    "harness": (lambda folder: (folder / "HARNESS.md").write_bytes(b"\xff"), PackParseError),
    "missing": (lambda folder: (folder / "policy.json").unlink(), PackParseError),
    "lint": (lambda folder: (folder / "policy.json").write_text(json.dumps({**POLICY, "stimuli": {}})), PackLintError),
    "link": (
        lambda folder: ((folder / "HARNESS.md").unlink(), (folder / "HARNESS.md").symlink_to("/etc/hostname")),
        PackParseError,
    ),
}


@pytest.mark.spec("9.7.install")
def test_of_all_that_can_refuse_an_install_the_first_is_told(world, ana):
    """Everything is wrong at once and is mended from the front: session, principal, plane, grant, policy, lint."""
    world.change(SESSION, SESSION.c.principal == "ana", revoked_at=1, expires_at=1)
    world.change(PRINCIPAL, PRINCIPAL.c.id == "ana", disabled_at=1)
    unread, unlinted = {**POLICY, "owner": "ana", "stimuli": {}}, {**POLICY, "stimuli": {}}
    told = []

    def install(surface, policy):
        with pytest.raises(HcpError) as refused:
            ana.install_pack(world.pack(surface, policy))
        told.append(str(refused.value))

    install(CONTROL, unread)
    world.change(SESSION, SESSION.c.principal == "ana", revoked_at=None)
    install(CONTROL, unread)
    world.change(SESSION, SESSION.c.principal == "ana", expires_at=2**61)
    install(CONTROL, unread)
    world.change(PRINCIPAL, PRINCIPAL.c.id == "ana", disabled_at=None)
    install(CONTROL, unread)
    install(SURFACE, unread)
    world.operator.add_grant("ana", "pack.install", pack="mail")
    install(SURFACE, unread)
    install(SURFACE, unlinted)

    assert told[:5] == [
        *("denied: session revoked", "denied: session expired", "denied: principal disabled", PLANE, INSTALL)
    ]
    assert told[5].startswith("policy.json /owner: unknown field")
    assert told[6].startswith("mail: missing_stimulus: ")
    assert ana.install_pack(world.pack()).installed_by == "ana"


@pytest.mark.case("C24")
@pytest.mark.spec("4.4.reject")
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_pack_is_refused_whole_and_the_last_good_one_stays(world, ana, how):
    """Whatever is wrong with it: nothing is changed, and only who may install learns what it is."""
    world.operator.install_pack(world.pack())
    good, before = in_force(world), everything(world)
    folder = world.pack()
    breaks, error = BROKEN[how]
    breaks(folder)

    with pytest.raises(error) as refused:
        world.operator.install_pack(folder)
    with pytest.raises(Denied, match=INSTALL):
        ana.install_pack(folder)

    assert "\n" not in str(refused.value)
    assert everything(world) == before
    assert in_force(world) == good
    with Operator.open(world.settings, session_file=world.home / "t-red.session") as restarted:
        assert restarted.show_pack("mail").generation == 1


def test_one_grant_for_some_pack_is_enough_to_learn_that_a_pack_cannot_be_read(world, ana):
    """A pack without a readable id cannot be told from the one that is granted: its first issue is the answer."""
    world.operator.add_grant("ana", "pack.install", pack="other")
    (world.pack() / "surface.json").write_text("{")

    with pytest.raises(PackParseError):
        ana.install_pack(world.folder / "source" / "mail")


@pytest.mark.case("C23")
@pytest.mark.parametrize(
    "name",
    ["traversal.zip", "absolute.zip", "symlink-file.zip", "symlink-dir-then-file.zip", "hardlink.tar"],
)
def test_an_archive_that_leads_out_is_refused_whole(world, name):
    """Nothing appears anywhere, nothing half installed is listed, and the pack that was there still works."""
    world.operator.install_pack(world.pack())
    before = everything(world)

    with pytest.raises(PackError):
        world.operator.install_pack(CASES / f"C23-{name}")

    assert everything(world) == before
    assert [one.pack_id for one in world.operator.list_packs()] == ["mail"]
    assert in_force(world) is not None


def test_archives_install_like_folders(world):
    """A zip and a tar of the same files are the same revision as the folder."""
    folder = world.pack()
    first = world.operator.install_pack(folder)
    with zipfile.ZipFile(world.folder / "mail.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"mail/{file.name}")
    for name in ("mail.tgz", "mail.tar.gz"):
        with tarfile.open(world.folder / name, "w:gz") as archive:
            archive.add(folder, "mail")

    for name in ("mail.zip", "mail.tgz", "mail.tar.gz"):
        assert world.operator.install_pack(world.folder / name) == first


@pytest.mark.case("C23")
@pytest.mark.spec("1.6.store")
@pytest.mark.parametrize("linked", ["packs", "packs/t-red", "packs/t-red/mail"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "reinstall"])
def test_a_link_in_the_store_is_never_followed(world, linked, there):
    """Where the pack's place, or a folder above it, leads elsewhere: refused whole, and nothing is written there."""
    if there:
        world.operator.install_pack(world.pack())
    elsewhere = world.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "policy.json").write_text("theirs")
    place = world.home / linked
    if place.exists():
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(elsewhere)
    before = world.count(REVISION), world.version(), in_force(world)

    with pytest.raises(UsageError, match=f"{linked}: is a link or a file"):
        world.operator.install_pack(world.pack(policy={**POLICY}, surface={**SURFACE, "title": "Changed"}))

    assert [(path.name, path.read_text()) for path in elsewhere.iterdir()] == [("policy.json", "theirs")]
    assert (world.count(REVISION), world.version(), in_force(world)) == before
    place.unlink()
    assert world.operator.install_pack(world.pack(surface={**SURFACE, "title": "Changed"})).title == "Changed"


def test_a_link_that_comes_later_is_removed_with_the_pack_not_followed(world):
    """Removing a pack whose place was turned into a link removes the link alone."""
    world.operator.install_pack(world.pack())
    elsewhere = world.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    place = world.home / "packs" / "t-red" / "mail"
    shutil.rmtree(place)
    place.symlink_to(elsewhere)

    world.operator.remove_pack("mail")

    assert not place.is_symlink()
    assert (elsewhere / "precious").read_text() == "precious"


@pytest.mark.case("C24")
@pytest.mark.parametrize(
    "rewrites", [pytest.param(20, id="quick"), pytest.param(300, id="literal", marks=pytest.mark.long)]
)
def test_edits_of_files_change_nothing(world, rewrites):
    """While the source folder is cut, half written and broken, and the copy edited, what was installed is in force."""
    source = world.pack()
    world.operator.install_pack(source)
    before = in_force(world)
    copy = world.home / "packs" / "t-red" / "mail" / "policy.json"
    looser = json.dumps({**POLICY, "stimuli": {**POLICY["stimuli"], "more": POLICY["stimuli"]["new_item"]}})

    for rewrite in range(rewrites):
        for place in (source / "policy.json", copy):
            place.write_text("")
            assert in_force(world) == before
            place.write_text(looser[: rewrite % len(looser)])
            assert in_force(world) == before
            place.write_text(looser)
            assert in_force(world) == before
    assert world.operator.show_pack("mail").generation == 1


@pytest.mark.case("C24")
@pytest.mark.parametrize(
    "installs", [pytest.param(10, id="quick"), pytest.param(100, id="literal", marks=pytest.mark.long)]
)
def test_each_reinstall_takes_effect_whole(world, installs):
    """A reader sees the old revision or the new one, every file of it; each install is the next generation."""
    versions = [({**SURFACE, "title": f"Mail {number}"}, number) for number in range(1, installs + 1)]
    for surface, number in versions:
        assert world.operator.install_pack(world.pack(surface)).generation == number
        revision = in_force(world)
        assert (revision.generation, revision.pack.title) == (number, f"Mail {number}")

    (world.pack() / "policy.json").write_text("{")
    with pytest.raises(PackParseError):
        world.operator.install_pack(world.folder / "source" / "mail")
    assert in_force(world).generation == installs
    copy = world.home / "packs" / "t-red"
    assert [path.name for path in copy.iterdir()] == ["mail"]


def test_a_removed_pack_is_gone_and_comes_back_as_a_new_generation(world):
    """Removal keeps the old rows, takes the copy away, and the next install counts on."""
    world.operator.install_pack(world.pack())
    world.operator.remove_pack("mail")

    assert (in_force(world), world.operator.list_packs()) == (None, [])
    assert not (world.home / "packs" / "t-red" / "mail").exists()
    for call in (world.operator.show_pack, world.operator.remove_pack):
        with pytest.raises(NotFound, match="'mail' is not installed"):
            call("mail")
    assert world.operator.install_pack(world.pack()).generation == 2


def test_a_pack_is_installed_in_one_tenant(world):
    """Another tenant neither sees nor shares it, and its own revision of the same id is apart."""
    world.operator.install_pack(world.pack())
    blue = world.tenant("t-blue")

    assert blue.list_packs() == []
    blue.install_pack(world.pack({**SURFACE, "title": "Blue mail"}))
    blue.remove_pack("mail")

    assert world.operator.show_pack("mail").title == "Mail"
    assert in_force(world, tenant="t-blue") is None


def test_binaries_are_allowed_by_absolute_path(world):
    """A wrap pack's binary is recorded with the revision; another path is another revision."""
    program = world.folder / "git"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    view = world.operator.install_pack(world.pack(WRAP, WRAP_POLICY), allow_bins={"git": str(program)})
    assert view.allowed_bins == {"git": str(program)}
    assert in_force(world, "git").allowed_bins == {"git": str(program)}
    other = shutil.copy(program, world.folder / "git-2")
    assert world.operator.install_pack(world.pack(WRAP, WRAP_POLICY), allow_bins={"git": str(other)}).generation == 2


NOT_ALLOWED = "git is not allowed, so no command can run (pack install … --allow-bin git=/absolute/path)"


def test_an_install_keeps_the_binaries_that_are_still_wanted(world):
    """Without `allow_bins` they stand, and the answer says which; with it what is given stands alone."""
    for name in ("git", "hg"):
        (world.folder / name).write_text("#!/bin/sh\n")
        (world.folder / name).chmod(0o755)
    git, hg = str(world.folder / "git"), str(world.folder / "hg")
    both = {**WRAP, "sandbox": {"bins": ["git", "hg"]}}
    first = world.operator.install_pack(world.pack(both, WRAP_POLICY), allow_bins={"git": git, "hg": hg})
    assert (first.kept, first.warnings) == ((), ())

    again = world.operator.install_pack(world.pack(both, WRAP_POLICY))
    assert (again.generation, again.allowed_bins, again.kept) == (1, {"git": git, "hg": hg}, ("git", "hg"))
    fewer = world.operator.install_pack(world.pack(WRAP, WRAP_POLICY))
    assert (fewer.generation, fewer.allowed_bins, fewer.kept) == (2, {"git": git}, ("git",))
    assert in_force(world, "git").allowed_bins == {"git": git}
    assert world.operator.show_pack("git").kept == ()

    none = world.operator.install_pack(world.pack(WRAP, WRAP_POLICY), allow_bins={})
    assert (none.allowed_bins, none.kept, none.warnings) == ({}, (), (NOT_ALLOWED,))


def test_a_removed_pack_comes_back_without_its_binaries(world):
    """Taking it out takes back what it was trusted with; the warning says what it lacks, wherever it is shown."""
    (world.folder / "git").write_text("#!/bin/sh\n")
    (world.folder / "git").chmod(0o755)
    source = world.pack(WRAP, WRAP_POLICY)
    world.operator.install_pack(source, allow_bins={"git": str(world.folder / "git")})
    world.operator.remove_pack("git")

    back = world.operator.install_pack(source)
    assert (back.allowed_bins, back.kept, back.warnings) == ({}, (), (NOT_ALLOWED,))
    assert world.operator.show_pack("git").warnings == (NOT_ALLOWED,)


def test_a_pack_that_wants_no_binary_is_told_where_it_says_so(world):
    """Without `sandbox` there is nothing to allow: the refusal names the place, and so does the warning."""
    bare = {name: part for name, part in WRAP.items() if name != "sandbox"}
    with pytest.raises(UsageError) as refused:
        world.operator.install_pack(world.pack(bare, WRAP_POLICY), allow_bins={"git": "/usr/bin/git"})
    way_out = "it wants: none; what it may run stands in sandbox.bins of its surface.json"
    assert str(refused.value) == f"--allow-bin: git wants no 'git' ({way_out})"
    assert world.operator.install_pack(world.pack(bare, WRAP_POLICY)).warnings == (
        'surface.json /sandbox/bins: does not name "git", so no command can run',
    )


def test_a_binary_that_cannot_be_meant_is_refused(world):
    """Not wanted by the manifest, or what a spawn would refuse, also where a link leads to it: nothing changes."""
    for file, mode in (("git", 0o755), ("plain", 0o644), ("open", 0o777)):
        (world.folder / file).write_text("#!/bin/sh\n")
        (world.folder / file).chmod(mode)
    (world.folder / "link").symlink_to("open")
    (world.folder / "shared").mkdir()
    shutil.copy(world.folder / "git", world.folder / "shared" / "git")
    (world.folder / "shared").chmod(0o777)
    source = world.pack(WRAP, WRAP_POLICY)
    for name, place, text in (
        ("hg", str(world.folder / "git"), "git wants no 'hg'"),
        ("git", "git", "is no executable file"),
        ("git", "./git", "is no executable file"),
        ("git", str(world.folder), "is no executable file"),
        ("git", str(world.folder / "none"), "is no executable file"),
        ("git", str(world.folder / "plain"), "is no executable file"),
        ("git", str(world.folder / "open"), "may be written by others"),
        ("git", str(world.folder / "link"), "may be written by others"),
        ("git", str(world.folder / "shared" / "git"), "in a folder that others may write to"),
    ):
        with pytest.raises(UsageError, match=text):
            world.operator.install_pack(source, allow_bins={name: place})
    assert world.count(REVISION) == 0


def test_a_source_that_is_none_is_named(world):
    """A path that leads nowhere is one clear line."""
    for place in ("none", "mail.rar", "a\x00b"):
        with pytest.raises(HcpError) as refused:
            world.operator.install_pack(world.folder / place)
        assert "\n" not in str(refused.value)


@pytest.mark.spec("1.6.activate")
def test_activate_places_the_pack_on_the_session(world, ana):
    """The activation is of the acting session; its adapter's file is written, and HARNESS.md copied to SKILL.md."""
    world.operator.install_pack(world.pack())
    workspace = world.folder / "work"
    workspace.mkdir()
    world.forget()

    made = ana.activate("mail", project="nobodys", workspace=workspace)

    assert (made.session_id, made.pack_id, made.project) == (ana.acting.session_id, "mail", "nobodys")
    facts = json.loads(Path(made.file).read_text())
    row = SqlAuthoritySource(world.database, Registry(), Vault.load(world.settings)).activation("t-red", made.id)
    assert facts | {"secret": None} == {
        "v": 1,
        "tenant": "t-red",
        "principal": "ana",
        "activation_id": made.id,
        "pack_id": "mail",
        "secret": None,
        "redis_url": facts["redis_url"],
    }
    assert row.credential.current == facts["secret"].encode()
    assert (row.project_id, row.workspace) == ("nobodys", str(workspace))
    skill = world.home / "sessions" / made.session_id / "mail" / "SKILL.md"
    assert (made.skill, skill.read_text()) == (str(skill), "# Mail\n")
    assert world.audited() == [("activate", True, "ana", None)]


def test_one_activation_stands_per_session_pack_and_project(world, ana):
    """The standing one is returned with its files written again; another project or session has its own."""
    world.operator.install_pack(world.pack())
    first = ana.activate("mail")
    secret = json.loads(Path(first.file).read_text())["secret"]
    Path(first.file).unlink()
    world.forget()

    assert ana.activate("mail") == first
    assert json.loads(Path(first.file).read_text())["secret"] == secret
    assert world.audited() == []
    others = [ana.activate("mail", project="apollo").id, world.operator.activate("mail").id]
    assert len({first.id, *others}) == 3
    with pytest.raises(Conflict, match="deactivate it first"):
        ana.activate("mail", workspace=world.folder)


def test_a_deactivated_activation_is_over(world, ana):
    """It is revoked, its file is gone, and the next activation is a new one; one's own, an operator anyone's."""
    world.operator.install_pack(world.pack())
    bob = world.principal("bob")
    first, second = ana.activate("mail"), bob.activate("mail")

    assert ana.deactivate(first.id).revoked_at is not None
    assert not Path(first.file).exists()
    assert ana.activate("mail").id != first.id
    with pytest.raises(NotFound):
        ana.deactivate(second.id)
    assert world.operator.deactivate(second.id).revoked_at is not None
    with pytest.raises(NotFound):
        ana.deactivate("act_0")


def test_a_workspace_is_a_folder_that_is_there(world, ana):
    """Relative, missing or a file: refused, and nothing activated."""
    world.operator.install_pack(world.pack())
    (world.folder / "file").touch()

    for workspace in ("relative", "/none/at/all", str(world.folder / "file"), "a\x00b"):
        with pytest.raises(UsageError, match="workspace"):
            ana.activate("mail", workspace=Path(workspace))
    with pytest.raises(NotFound, match="'other' is not installed"):
        ana.activate("other")
    assert world.count(ACTIVATION) == 0


def test_a_workspace_is_where_its_links_lead_now(world, ana):
    """A link is resolved when the pack is activated: turning it later moves nothing."""
    world.operator.install_pack(world.pack())
    real, link = world.folder / "real", world.folder / "link"
    real.mkdir()
    link.symlink_to(real)

    assert ana.activate("mail", workspace=link).workspace == str(real)


@pytest.mark.spec("1.4.binding-modes")
@pytest.mark.case("C65")
def test_a_mock_binding_is_legal_only_where_the_setting_says_so(world):
    """Mode mock is refused as binding_pair, with the setting named; with SENSE_ALLOW_MOCK=true it installs."""
    source = world.pack({**SURFACE, "binding": {"mode": "mock", "hub": "none"}})
    with pytest.raises(PackLintError, match=r"binding_pair.*SENSE_ALLOW_MOCK=true"):
        world.operator.install_pack(source)
    world.operator.settings = world.settings.model_copy(update={"allow_mock": True})

    assert world.operator.install_pack(source).pack_id == "mail"


@pytest.mark.case("C22")
def test_a_pack_with_a_mark_is_refused_and_the_others_go_on(world):
    """A byte-order mark in either file refuses that pack alone: what is in force stays, and can be activated."""
    world.operator.install_pack(world.pack())
    for name in ("policy.json", "surface.json"):
        source = world.pack({**SURFACE, "id": "marked"}, {**POLICY, "surface_id": "marked"})
        file = source / name
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
        with pytest.raises(PackParseError, match="mark"):
            world.operator.install_pack(source)

    assert [row.pack_id for row in world.operator.list_packs()] == ["mail"]
    assert world.operator.activate("mail").pack_id == "mail"
