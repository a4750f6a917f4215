"""Acting as a session that was just issued, held in memory alone, as a web app holds its logins."""

from __future__ import annotations

import pytest

from runtime_core.errors import Denied, UsageError


def test_a_pack_is_activated_on_an_issued_session(world):
    """What is done under an issued session is its principal's, and ends with the session."""
    world.operator.install_pack(world.pack())
    world.operator.add_principal("ana")
    issued = world.operator.issue_session("ana", expires_in_s=900)
    ana = world.operator.acting_as(issued)
    assert (ana.acting.principal, ana.acting.session_id, ana.acting.operator) == ("ana", issued.id, False)
    assert ana.activate("mail").session_id == issued.id
    with pytest.raises(Denied, match="requires an operator"):
        ana.add_principal("bob")
    rotated = ana.rotate_session(issued.id, overlap_s=0)
    assert rotated.file is None
    with pytest.raises(UsageError):
        _ = ana.acting  # the secret that it holds is dead
    world.operator.revoke_session(issued.id)
    assert world.operator.acting.operator
