"""`grant add|revoke|list`: who may cause which effect (§9.4)."""

from __future__ import annotations

from typing import Annotated

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Expires, Json, Project, example, optional_duration

app = typer.Typer(no_args_is_help=True, help="Who may cause which effect.")


def _keys(keys: list[str] | None) -> str:
    """No keys named means all of the pack; an empty list matches nothing (DESIGN §3)."""
    if keys is None:
        return "all"
    return ", ".join(keys) or "none"


_WORDED = {"keys": _keys}


@app.command(epilog=example("grant add ana sense.enable --pack git --key commit.created --expires 30d"))
def add(
    principal_id: Annotated[str, typer.Argument(metavar="PRINCIPAL")],
    capability: Annotated[
        str,
        typer.Argument(
            metavar="CAPABILITY",
            help="pack.install, pack.connect, verb.exec.read, verb.exec.write, sense.enable, mothership.elevate.",
        ),
    ],
    *,
    pack: Annotated[str, typer.Option("--pack", help="The id of one pack, or * for all.")] = "*",
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="Only this command or trigger; repeatable. Default: all."),
    ] = None,
    project: Project = None,
    expires: Expires = None,
    json: Json = False,
) -> None:
    """Grant a capability; in force for every attempt from now on."""
    seconds = optional_duration(expires, "--expires")
    with operator() as acting:
        row = acting.add_grant(
            principal_id, capability, pack=pack, keys=key or None, project=project, expires_in_s=seconds
        )
    below = ("revoked_at", "warnings")
    render.print_row(row, f"granted {capability} to {principal_id}", as_json=json, worded=_WORDED, hide=below)
    if not json:
        for warning in row.warnings:
            render.warn(warning)


@app.command(epilog=example("grant revoke grt_0123456789abcdef"))
def revoke(grant_id: Annotated[str, typer.Argument(metavar="GRANT")], *, json: Json = False) -> None:
    """Revoke a grant: no attempt claimed from now on passes by it, first tries and retries alike."""
    with operator() as acting:
        row = acting.revoke_grant(grant_id)
    render.print_row(row, f"revoked {grant_id}", as_json=json, worded=_WORDED, hide=("warnings",))


@app.command("list", epilog=example("grant list --principal ana"))
def list_(
    *,
    principal: Annotated[str | None, typer.Option("--principal", help="Only the grants of this one.")] = None,
    json: Json = False,
) -> None:
    """List grants."""
    with operator() as acting:
        rows = acting.list_grants(principal=principal)
    columns = {
        "GRANT": "id",
        "PRINCIPAL": "principal",
        "CAPABILITY": "capability",
        "PACK": "pack_id",
        "KEYS": "keys",
        "PROJECT": "project",
        "EXPIRES": "expires_at",
    }
    render.print_table(rows, columns, as_json=json, empty="no grants", worded=_WORDED)
