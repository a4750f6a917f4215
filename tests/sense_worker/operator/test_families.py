"""Families: who installs a pack decides, out loud, that it gets what principals gave to the others (§1.4.family)."""

from __future__ import annotations

import pytest

from runtime_core.binding import Holder
from runtime_core.errors import Denied, UsageError
from sense_worker.hubs import build_hubs
from tests.notes_pack import write_notes

LIVE = "denied: family desk has live bindings (join it with --join-family)"


def give(world, tenant="t-red", principal="ana", consent="family:desk", hub="keyring"):
    """Let a principal have given the family a credential."""
    hubs = build_hubs(world.settings, world.database, world.operator._vault)
    hubs[hub].keep(Holder(tenant, principal, consent), f"{principal}@desk", {"secret": "s"})
    return hubs[hub]


def install(world, pack_id, *, join=None, by=None, **given):
    given = {name: value for name, value in {"family": "desk", **given}.items() if value is not None}
    folder = write_notes(world.folder / "source" / pack_id, pack_id=pack_id, **given)
    return (by or world.operator).install_pack(folder, allow_bins={"tool": str(folder / "tool")}, join_family=join)


@pytest.mark.spec("1.4.family")
@pytest.mark.parametrize("hub", ["keyring", "local-credential"])
def test_a_pack_joins_a_family_in_use_only_by_its_name(world, hub):
    """Without the name it is refused, recorded, and nothing is installed; with it the audit says what was joined."""
    give(world, hub=hub)
    world.forget()

    with pytest.raises(Denied) as refused:
        install(world, "mail", hub=hub)
    assert str(refused.value) == LIVE
    assert world.operator.list_packs() == []
    assert world.audited() == [("pack.install", False, "operator", LIVE)]

    install(world, "mail", hub=hub, join="desk")
    assert '"subject":"mail generation 1, joins family desk"' in world.settings.audit_file.read_text().replace(
        " ", "", 1
    )


@pytest.mark.spec("1.4.family")
def test_who_gets_nothing_new_needs_no_consent(world):
    """A family nobody gave anything, another tenant's, a pack alone, one without a credential, a next revision."""
    install(world, "first")
    give(world)
    give(world, tenant="t-blue", consent="family:other")

    install(world, "first", title="again")
    install(world, "free", mode="public", hub="none")
    install(world, "stranger", family="other")
    install(world, "alone", family=None)

    assert [one.pack_id for one in world.operator.list_packs()] == ["alone", "first", "free", "stranger"]


@pytest.mark.spec("1.4.family")
@pytest.mark.parametrize(
    "before",
    [
        {"mode": "public", "hub": "none"},
        {"family": "other"},
        {"family": None},
        {"hub": "local-credential"},
    ],
)
def test_a_next_revision_that_gets_more_needs_consent(world, before):
    """It was without credentials, of another family, alone, or of another hub: it would get what it had not."""
    install(world, "mail", **before)
    give(world)

    with pytest.raises(Denied, match="live bindings"):
        install(world, "mail")
    assert world.operator.show_pack("mail").generation == 1
    assert install(world, "mail", join="desk").generation == 2


@pytest.mark.spec("1.4.family")
def test_a_pack_that_was_removed_joins_anew(world):
    """What a principal gave meanwhile was not given to it."""
    install(world, "mail")
    world.operator.remove_pack("mail")
    give(world)

    with pytest.raises(Denied, match="live bindings"):
        install(world, "mail")


@pytest.mark.spec("1.4.family")
def test_once_all_have_disconnected_nothing_is_joined(world):
    """The consent is over with its last credential."""
    hub = give(world)
    give(world, principal="ben")
    for principal in ("ana", "ben"):
        hub.forget(Holder("t-red", principal, "family:desk"))

    assert install(world, "mail").generation == 1


@pytest.mark.parametrize("given", [{"join": "kitchen"}, {"join": "desk", "family": None}])
def test_another_familys_name_is_refused(world, given):
    """Named must be the pack's own; nothing is installed."""
    with pytest.raises(UsageError, match="--join-family"):
        install(world, "mail", **given)
    assert world.operator.list_packs() == []
