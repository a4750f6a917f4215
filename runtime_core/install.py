"""Who may act, and who may place a pack in a tenant (§1.6.install, §9.1.2, §9.4, DESIGN §7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime_core import errors

if TYPE_CHECKING:
    from runtime_core.errors import Refusal
    from runtime_core.grants import Grant
    from runtime_core.identity import Micros


def session_refusal(*, revoked: bool, expires_at: Micros, disabled: bool, now: Micros) -> Refusal | None:
    """Tell why a session does not stand at `now`; `disabled` is its principal's. None: it stands."""
    if revoked:
        return errors.SESSION_REVOKED
    if expires_at <= now:
        return errors.SESSION_EXPIRED
    return errors.PRINCIPAL_DISABLED if disabled else None


def install_refusal(*, operator: bool, plane: str | None, grant: Grant | None) -> Refusal | None:
    """Tell why a pack of this plane may not be placed, control plane first; `grant` is the one that would allow it.

    A pack whose manifest cannot be read has no plane (None).
    """
    if plane == "control" and not operator:
        return errors.CONTROL_PLANE
    return errors.MISSING_PACK_INSTALL if grant is None else None
