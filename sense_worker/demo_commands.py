"""The demo's second half: ana's commands through the queue, judged by the repository and by the audit (DESIGN §8).

1. she reads the log of her repository, and the result comes back to her.
2. she would commit: she has no grant to write, and is denied.
3. she gets the grant and would commit without a confirmation: refused before anything ran.
4. she confirms: the commit is there, and the audit has the line of before its effect and the one of after it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sense_worker.client import HeldSession, RuntimeClient
from sense_worker.demo_stage import DemoFailed, expect
from sense_worker.exec.door import exec_id
from sense_worker.invoker import Invoker
from sense_worker.session_file import read_session
from sense_worker.up_file import discover_redis_url

if TYPE_CHECKING:
    from pathlib import Path

    from runtime_core.envelope import ResultEnvelope
    from sense_worker.demo_stage import Stage
    from sense_worker.operator import Operator

ANSWERED_S = 60.0
"""How long a command gets for its answer; it takes some 100 ms."""
MISSING_WRITE = "denied: missing verb.exec.write for git.commit"
CONFIRM = "confirm required"
MESSAGE = "Commit by a command"


class Answered(NamedTuple):
    """A result envelope, and what the audit says of the request: its actions, and whether a credential was minted."""

    asked: str
    envelope: ResultEnvelope
    actions: list[str]
    minted: bool

    @property
    def printed(self) -> list[str]:
        """What the tool wrote to its standard output, by lines; nothing where it did not run."""
        result = self.envelope.result
        return [] if result is None else str(result["stdout"]).splitlines()

    def shown(self) -> dict[str, Any]:
        """Return it as facts of the story."""
        outcome = {"result": self.printed} if self.envelope.ok else {"error": self.envelope.error}
        return {"asked": self.asked, "ok": self.envelope.ok, **outcome, "in_the_audit": self.actions}


class Desk:
    """Ana at her desk: her session, a client for the queue, and a look at what really happened."""

    def __init__(self, stage: Stage, operator: Operator, session_file: Path) -> None:
        self._stage = stage
        self._operator = operator
        self._session_file = session_file
        self._held = HeldSession.of(read_session(session_file))

    def provide(self, source: Path) -> dict[str, Any]:
        """Take the hooks out, as a tool in its sandbox reaches no activation, and let ana read but not write."""
        stage = self._stage
        stage.run(str(source / "install-hooks.sh"), "--remove", str(stage.repository))
        for name, value in (("user.name", "Ana"), ("user.email", "ana@example.com")):
            stage.run("git", "config", "--local", name, value)  # a tool has none of its caller's environment
        self._operator.add_grant("ana", "verb.exec.read", pack="git")
        return {"granted": "ana: verb.exec.read for git", "available": self._available()}

    def read(self) -> dict[str, Any]:
        """Have git.log run."""
        answered = self._ask("git.log", {"limit": 2})
        lines = self._stage.run("git", "log", "-n", "2", "--format=%H %s").splitlines()
        expect("the answer to git.log", answered.envelope.error, None)
        expect("the result of git.log", answered.printed, lines)
        expect("the audit of git.log", answered.actions, ["exec"])
        return answered.shown()

    def denied(self) -> dict[str, Any]:
        """Ask for a commit without the grant to write."""
        return self._refused({"message": MESSAGE, "confirm": True}, MISSING_WRITE)

    def unconfirmed(self) -> dict[str, Any]:
        """Ask for a commit with the grant, and without the confirmation."""
        grant = self._operator.add_grant("ana", "verb.exec.write", pack="git", keys=["git.commit"])
        refused = self._refused({"message": MESSAGE}, CONFIRM)
        return {"granted": "ana: verb.exec.write for git.commit", "grant": grant.id, **refused}

    def confirmed(self) -> dict[str, Any]:
        """Ask for the same commit with the confirmation."""
        before = self._head()
        answered = self._ask("git.commit", {"message": MESSAGE, "confirm": True})
        expect("the answer to git.commit", (answered.envelope.ok, answered.envelope.error), (True, None))
        expect("the new commit's parent", self._stage.run("git", "rev-parse", "HEAD^"), before)
        expect("the new commit's message", self._stage.run("git", "log", "-n", "1", "--format=%s"), MESSAGE)
        expect("the audit of git.commit", answered.actions, ["exec.begin", "exec.end"])
        return {"commit": self._head(), **answered.shown()}

    def _refused(self, args: dict[str, Any], text: str) -> dict[str, Any]:
        """Ask for a commit that must be refused with this text, and check that nothing came of it."""
        before = self._head()
        (self._stage.repository / "notes.txt").write_text(f"{MESSAGE}\n")
        self._stage.run("git", "add", "notes.txt")
        answered = self._ask("git.commit", args)
        expect("the answer to git.commit", (answered.envelope.ok, answered.envelope.error), (False, text))
        expect("the result of git.commit", answered.envelope.result, None)
        expect("the head of the repository", self._head(), before)
        expect("the audit of git.commit", (answered.actions, answered.minted), (["exec"], False))
        return answered.shown()

    def _ask(self, verb_key: str, args: dict[str, Any]) -> Answered:
        url = discover_redis_url(self._stage.settings)
        if url is None:
            raise DemoFailed("sense-worker up", "its server is gone")
        with RuntimeClient(self._held, url) as client:
            handle = client.submit("git", verb_key, args, timeout_s=ANSWERED_S)
            envelope = handle.result()
        request = exec_id(self._held.tenant, self._held.session_id, handle.message_id).hex()
        lines = [json.loads(line) for line in self._stage.settings.audit_file.read_text().splitlines()]
        told = [line for line in lines if line.get("subject") == request]
        asked = " ".join([verb_key, json.dumps(args)])
        return Answered(asked, envelope, [line["action"] for line in told], any(line.get("binding") for line in told))

    def _available(self) -> list[str]:
        with Invoker.open(self._stage.settings, session_file=self._session_file) as invoker:
            (found,) = invoker.availability("git")
        expect("git being activated", (found.installed, found.activated, found.connected), (True, True, True))
        reasons = {one.verb_key: one.reason for one in found.commands}
        wanted = {"git.log": None, "git.status": None, "git.commit": MISSING_WRITE}
        expect("what is available", reasons, wanted)
        return [f"{key}: {reason or 'yes'}" for key, reason in reasons.items()]

    def _head(self) -> str:
        return self._stage.run("git", "rev-parse", "HEAD")
