"""`principal …`, `session …`, `project …`: who acts, under which session, in which project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.activations import ending
from sense_worker.cli.values import Json, Overlap, duration, example, overlap

if TYPE_CHECKING:
    from sense_worker.operator import Operator

principal = typer.Typer(no_args_is_help=True, help="The acting identities of the tenant.")
session = typer.Typer(no_args_is_help=True, help="Authenticated sessions of principals.")
project = typer.Typer(no_args_is_help=True, help="Projects and who is in them.")

PrincipalId = Annotated[str, typer.Argument(metavar="PRINCIPAL")]
ProjectId = Annotated[str, typer.Argument(metavar="PROJECT")]
SessionFile = Annotated[
    Path | None,
    typer.Option("--file", help="Where the secret goes (0600). Default: $HCP_HOME/principals/TENANT/ID.session."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a regular file that stands in the place.")]
_PRINCIPAL = {"PRINCIPAL": "id", "KIND": "kind", "OPERATOR": "operator", "CREATED": "created_at"}


@principal.command("add", epilog=example("principal add ana"))
def add_principal(
    principal_id: PrincipalId,
    *,
    kind: Annotated[str, typer.Option("--kind", help="human, service, agent or mothership.")] = "human",
    operator_: Annotated[bool, typer.Option("--operator", help="May provision and read the whole tenant.")] = False,
    json: Json = False,
) -> None:
    """Add a principal to the tenant."""
    with operator() as acting:
        row = acting.add_principal(principal_id, kind=kind, operator=operator_)
    render.print_row(row, f"principal {principal_id}", as_json=json)


@principal.command("list", epilog=example("principal list"))
def list_principals(*, json: Json = False) -> None:
    """List the principals of the tenant."""
    with operator() as acting:
        rows = acting.list_principals()
    columns = {**_PRINCIPAL, "DISABLED": "disabled_at"}
    render.print_table(rows, columns, as_json=json, empty="no principals")


@principal.command("disable", epilog=example("principal disable ana"))
def disable_principal(principal_id: PrincipalId, *, json: Json = False) -> None:
    """Disable a principal: from now on every attempt for it or announced by it is denied."""
    with operator() as acting:
        row = acting.disable_principal(principal_id)
    render.print_row(row, f"disabled {principal_id}", as_json=json)


@principal.command("enable", epilog=example("principal enable ana"))
def enable_principal(principal_id: PrincipalId, *, json: Json = False) -> None:
    """Enable a disabled principal; what was denied meanwhile stays denied."""
    with operator() as acting:
        row = acting.enable_principal(principal_id)
    render.print_row(row, f"enabled {principal_id}", as_json=json)


@session.command("create", epilog=example("session create ana --expires 30d --file ana.session"))
def create_session(
    principal_id: PrincipalId,
    *,
    expires: Annotated[str, typer.Option("--expires", metavar="DURATION", help="90s, 15m, 12h, 30d.")] = "12h",
    file: SessionFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Issue a session for a principal; its secret goes into a file and is never printed."""
    seconds = duration(expires, "--expires")
    with operator() as acting:
        place = (file or _default_file(acting, principal_id)).expanduser().absolute()
        row = acting.create_session(principal_id, expires_in_s=seconds, file=place, force=force)
    render.print_row(row, f"session of {principal_id}; act as it with SENSE_SESSION_FILE={row.file}", as_json=json)


@session.command("list", epilog=example("session list --json"))
def list_sessions(*, json: Json = False) -> None:
    """List the sessions of the tenant."""
    with operator() as acting:
        rows = acting.list_sessions()
    columns = {"SESSION": "id", "PRINCIPAL": "principal", "EXPIRES": "expires_at", "REVOKED": "revoked_at"}
    render.print_table(rows, columns, as_json=json, empty="no sessions")


@session.command("rotate", epilog=example("session rotate ses_0123456789abcdef --overlap 15m"))
def rotate_session(
    session_id: Annotated[str, typer.Argument(metavar="SESSION")],
    *,
    keep: Overlap = None,
    file: SessionFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Give a session a new secret, written into its file; of the acting session into the file in use."""
    seconds = overlap(keep)
    with operator() as acting:
        place = file
        if place is None and acting.acting.session_id != session_id:
            owners = [row.principal for row in acting.list_sessions() if row.id == session_id]
            place = _default_file(acting, owners[0]) if owners else None
        place = None if place is None else place.expanduser().absolute()
        row = acting.rotate_session(session_id, overlap_s=seconds, file=place, force=force)
    render.print_row(row, f"rotated {session_id}; {ending(row.overlap_ends_at)}", as_json=json)


def _default_file(acting: Operator, principal_id: str) -> Path:
    return acting.settings.home / "principals" / acting.acting.tenant / f"{principal_id}.session"


@session.command("revoke", epilog=example("session revoke ses_0123456789abcdef"))
def revoke_session(
    session_id: Annotated[str, typer.Argument(metavar="SESSION")],
    *,
    json: Json = False,
) -> None:
    """Revoke a session: nothing its activations announced is delivered from now on."""
    with operator() as acting:
        row = acting.revoke_session(session_id)
    render.print_row(row, f"revoked {session_id}", as_json=json)


@project.command("add", epilog=example("project add apollo"))
def add_project(project_id: ProjectId, *, json: Json = False) -> None:
    """Add a project to the tenant."""
    with operator() as acting:
        row = acting.add_project(project_id)
    render.print_row(row, f"project {project_id}", as_json=json)


@project.command("add-member", epilog=example("project add-member apollo ana"))
def add_member(project_id: ProjectId, principal_id: PrincipalId, *, json: Json = False) -> None:
    """Put a principal in a project."""
    with operator() as acting:
        row = acting.add_member(project_id, principal_id)
    render.print_row(row, f"{principal_id} is in {project_id}", as_json=json)


@project.command("remove-member", epilog=example("project remove-member apollo ana"))
def remove_member(project_id: ProjectId, principal_id: PrincipalId, *, json: Json = False) -> None:
    """Take a principal out of a project; effective at every attempt from now on."""
    with operator() as acting:
        row = acting.remove_member(project_id, principal_id)
    render.print_row(row, f"{principal_id} is no longer in {project_id}", as_json=json)


@project.command("list", epilog=example("project list"))
def list_projects(*, json: Json = False) -> None:
    """List the projects of the tenant with their members."""
    with operator() as acting:
        rows = acting.list_projects()
    columns = {"PROJECT": "id", "MEMBERS": "members", "CREATED": "created_at"}
    render.print_table(rows, columns, as_json=json, empty="no projects")
