"""`sense-worker demo`: the whole thing at work in a temporary folder, judged by what truly happened.

The git pack with its hooks in a real repository, two principals, a private server and a worker:

1. ana commits: the trigger arrives at two sinks, her inbox and her log file. Ben wants it too, and it is not his.
2. ana changes the branch: she has no grant for that trigger, and the attempt is denied.
3. the operator revokes her grant, and she commits again: denied at both sinks.
   The explanations of both denials name the step, the text and the clause.
4. ana runs commands through the queue: `sense_worker.demo_commands`.
5. the audit is whole and holds all of it.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.errors import UsageError
from sense_worker.audit_check import check_audit
from sense_worker.demo_commands import Desk
from sense_worker.demo_stage import expect, staged
from sense_worker.health import check_health
from sense_worker.operator import Operator
from sense_worker.up_file import discover_redis_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sense_worker.demo_stage import Stage
    from sense_worker.explain import Explanation, RouteReceipt
    from sense_worker.health import Health

READY_S = 60.0
"""How long `up` gets from its start to good health: 5 s on two idle cores, more where a test suite keeps them busy."""
SETTLED_S = 20.0
"""How long an announced event gets to be settled; it takes some 50 ms."""

MISSING = "denied: missing sense.enable"
NOT_HIS = "denied: privacy.land personal"


class Cast(NamedTuple):
    """Who and what plays: the operator, ana's grant and routes."""

    operator: Operator
    grant: str
    inbox: str
    log: str
    branch: str
    log_file: Path


def find_pack() -> Path:
    """Return the git pack of the checkout this module is in. Raises UsageError outside a checkout."""
    pack = Path(__file__).resolve().parent.parent / "examples" / "packs" / "git"
    if not (pack / "surface.json").is_file():
        reason = "the git pack is an example of the source tree, and this is an installed copy"
        raise UsageError("demo", reason, "give --pack PATH to examples/packs/git of a checkout")
    return pack


def run_demo(
    tell: Callable[[str, Mapping[str, Any]], None],
    on_failure: Callable[[list[str]], None],
    *,
    pack: Path | None = None,
    keep: bool = False,
) -> dict[str, Any]:
    """Play the story and return its facts, by chapter. Raises DemoFailed where something did not happen as it says.

    `tell` gets title and facts of each chapter as it happens, `on_failure` the last lines of the log of `up`.
    """
    began = time.monotonic()
    source = find_pack() if pack is None else pack.expanduser().absolute()
    facts: dict[str, Any] = {}

    def chapter(name: str, title: str, told: Mapping[str, Any]) -> None:
        facts[name] = dict(told)
        tell(title, told)

    with staged(keep=keep, on_failure=on_failure) as stage:
        Operator.initialize(stage.settings)
        stage.start()
        with Operator.open(stage.settings) as operator:
            chapter("started", "A private server and a worker run", _started(stage, operator))
            cast = _provide(stage, operator, source)
            chapter(
                "provided", "The git pack is installed, and its hooks are in ana's repository", _provided(stage, cast)
            )
            chapter("delivered", "Ana commits: the trigger arrives at two sinks", _first_commit(stage, cast))
            missing = _branch(stage, cast)
            chapter("missing_grant", "Ana changes the branch: she has no grant for that trigger", missing)
            chapter("revoked", "Her grant is revoked, and she commits again", _second_commit(stage, cast))
            desk = Desk(stage, operator, stage.folder / "ana.session")
            chapter("commands", "Ana may run the commands of git that read", desk.provide(source))
            chapter("read", "She has one run through the queue, and gets its result", desk.read())
            chapter("denied_write", "She has no grant to write: her commit is denied", desk.denied())
            chapter(
                "unconfirmed", "Granted, and unconfirmed: refused before anything was minted or ran", desk.unconfirmed()
            )
            chapter("confirmed", "She confirms the same commit, and it is there", desk.confirmed())
            chapter("audit", "The worker stops in order, and the audit is whole", _stopped(stage))
        if keep:
            chapter("kept", "The home and the repository are kept", {"folder": str(stage.folder)})
    return {"ok": True, **facts, "seconds": round(time.monotonic() - began, 1)}


def _started(stage: Stage, operator: Operator) -> dict[str, Any]:
    stage.until(lambda: discover_redis_url(stage.settings), READY_S, "`sense-worker up` being ready")
    health = stage.until(lambda: _good(check_health(stage.settings)), READY_S, "good health of `sense-worker up`")
    server = next(finding.text for finding in health.findings if finding.name == "redis")
    return {"home": str(stage.settings.home), "tenant": operator.acting.tenant, "server": server}


def _good(health: Health) -> Health | None:
    return health if health.ok else None


def _provide(stage: Stage, operator: Operator, source: Path) -> Cast:
    """Do what an operator does, then what ana and ben do under their own sessions."""
    git = shutil.which("git")
    operator.install_pack(source, allow_bins={"git": git} if git else {})
    for name in ("ana", "ben"):
        operator.add_principal(name)
        operator.create_session(name, file=stage.folder / f"{name}.session")
    grant = operator.add_grant("ana", "sense.enable", pack="git", keys=["commit.created"])
    operator.add_grant("ben", "sense.enable", pack="git")
    log_file = stage.folder / "ana.jsonl"
    operator.add_sink("ana-log", "jsonl", options={"path": str(log_file)}, audience="principal:ana")
    with Operator.open(stage.settings, session_file=stage.folder / "ben.session") as ben:
        ben.add_route("git", "commit.created", "inbox")
    with Operator.open(stage.settings, session_file=stage.folder / "ana.session") as ana:
        inbox, log, branch = (ana.add_route("git", ref, sink).id for ref, sink in _WANTED)
        stage.repository.mkdir()
        activation = ana.activate("git", workspace=stage.repository)
    stage.run("git", "-c", "init.defaultBranch=main", "init", "--quiet")
    stage.run(str(source / "install-hooks.sh"), str(stage.repository), str(activation.file))
    return Cast(operator, grant.id, inbox, log, branch, log_file)


_WANTED = (("commit.created", "inbox"), ("commit.created", "ana-log"), ("branch.changed", "inbox"))
"""In the order of the fields of Cast."""


def _provided(stage: Stage, cast: Cast) -> dict[str, Any]:
    return {
        "repository": str(stage.repository),
        "granted": "ana: sense.enable for commit.created of git; ben: for all of git",
        "routes": [f"ana: {ref} -> {sink}" for ref, sink in _WANTED] + ["ben: commit.created -> inbox"],
        "grant": cast.grant,
    }


def _commit(stage: Stage, text: str) -> str:
    (stage.repository / "notes.txt").write_text(f"{text}\n")
    stage.run("git", "add", "notes.txt")
    stage.run("git", "commit", "--quiet", "-m", text)
    return stage.run("git", "rev-parse", "HEAD")


def _first_commit(stage: Stage, cast: Cast) -> dict[str, Any]:
    commit = _commit(stage, "Write the first note")
    told = _settled(stage, cast, cast.inbox, set())
    expect(
        "the deliveries",
        {route.sink: route.state for route in told.routes},
        dict.fromkeys(("inbox", "ana-log"), "delivered"),
    )
    expect("ben's route", told.without, {NOT_HIS: 1})
    inbox = [row for row in cast.operator.list_inbox(principal="ana") if row.event_id == told.id]
    expect("rows in ana's inbox", len(inbox), 1)
    expect("rows in ben's inbox", len(cast.operator.list_inbox(principal="ben")), 0)
    lines = [json.loads(line) for line in cast.log_file.read_text().splitlines()]
    expect("lines in ana's log file", [line["data"]["commit"] for line in lines], [commit])
    return {
        "commit": commit,
        "event": told.id,
        "delivered": [_shown(route) for route in told.routes],
        "not_for_ben": NOT_HIS,
    }


def _branch(stage: Stage, cast: Cast) -> dict[str, Any]:
    stage.run("git", "checkout", "--quiet", "-b", "second-thoughts")
    told = _settled(stage, cast, cast.branch, set())
    return _denied(cast, told, sinks=1)


def _second_commit(stage: Stage, cast: Cast) -> dict[str, Any]:
    before = {row.event_id for row in cast.operator.list_deliveries(route=cast.inbox)}
    cast.operator.revoke_grant(cast.grant)
    commit = _commit(stage, "Write the second note")
    told = _settled(stage, cast, cast.inbox, before)
    expect("lines in ana's log file", len(cast.log_file.read_text().splitlines()), 1)
    return {"revoked": cast.grant, "commit": commit, **_denied(cast, told, sinks=2)}


def _denied(cast: Cast, told: Explanation, sinks: int) -> dict[str, Any]:
    """Check that every delivery was denied for the missing grant, and that nothing of it reached the inbox."""
    expect("the texts", [route.text for route in told.routes], [MISSING] * sinks)
    expect("the states", {route.state for route in told.routes}, {"denied"})
    ended = {
        (step.name, step.outcome) for route in told.routes for step in route.steps if step.outcome.startswith("denied")
    }
    expect("the explained step", ended, {("require_capability", MISSING)})
    inbox = {row.event_id for row in cast.operator.list_inbox(principal="ana")}
    expect("in ana's inbox", told.id in inbox, False)
    return {"event": told.id, "denied": [_shown(route) for route in told.routes], "explained": told}


def _stopped(stage: Stage) -> dict[str, Any]:
    expect("the exit code of `sense-worker up`", stage.stop(), 0)
    check = check_audit(stage.settings)
    expect("problems of the audit", [problem.text for problem in check.problems], [])
    denials = sum(MISSING in line for line in stage.settings.audit_file.read_text().splitlines())
    expect("denials in the audit", denials, 3)
    return {"verified": f"{check.verified} of {check.lines} lines", "anchors": check.anchors, "denials": denials}


def _settled(stage: Stage, cast: Cast, route: str, before: set[str]) -> Explanation:
    """Wait for a new event on `route` and until every delivery of it is settled, and explain it."""

    def look() -> Explanation | None:
        rows = [row for row in cast.operator.list_deliveries(route=route) if row.event_id not in before]
        if not rows:
            return None
        told = cast.operator.explain(rows[0].event_id)
        return told if all(receipt.settled_at is not None for receipt in told.routes) else None

    return stage.until(look, SETTLED_S, "the announcement of the hook to be settled")


def _shown(route: RouteReceipt) -> str:
    return f"{route.owner} -> {route.sink}: {route.text or route.state}"
