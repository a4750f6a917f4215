"""Scenario documents with commands: the world of `documents`, whose pack `mail` has one command of each kind.

A test names grants, sections and cases of its own; ana is connected and may do all, ben and cyd may do nothing yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.spec import documents
from tests.spec.documents import entry, policy, surface

if TYPE_CHECKING:
    from runtime_core.audit import AuditRecord

AXES = ("pack.connect", "verb.exec.read", "verb.exec.write")
OPEN_ARGS: dict[str, Any] = {"args": {"type": "object"}}
USER = {"mode": "user", "hub": "keyring"}
VERBS: dict[str, Any] = {
    "mail.list": OPEN_ARGS,
    "mail.check": OPEN_ARGS,
    "mail.send": OPEN_ARGS,
    "mail.save": OPEN_ARGS,
    "mail.share": OPEN_ARGS,
    "mail.where": OPEN_ARGS,
    "mail.count": {"args": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    "mail.login": {**OPEN_ARGS, "connect": True},
}
ENTRIES: dict[str, Any] = {
    "mail.list": entry(),
    "mail.check": entry(),
    "mail.send": entry(operation="write", confirm=True),
    "mail.save": entry(operation="write"),
    "mail.share": entry("brain"),
    "mail.where": entry("local"),
    "mail.count": entry(operation="write"),
    "mail.login": entry(operation="write"),
}


def pack(**fields: Any) -> dict[str, Any]:
    """Return the pack `mail` with its commands; fields go to the top of the manifest."""
    return {
        "surface": surface(**{"adapter": "wrap", "binding": USER, "verbs": VERBS, **fields}),
        "policy": policy(verbs=ENTRIES),
    }


def composite(pack_id: str, entries: dict[str, Any], **verbs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a pack of composites, each with its steps."""
    manifest = surface(id=pack_id, adapter="composite", stimulusTriggers=[])
    manifest["verbs"] = {key: {**OPEN_ARGS, "steps": steps} for key, steps in verbs.items()}
    return {"surface": manifest, "policy": policy(surface_id=pack_id, verbs=entries, stimuli={})}


def grants(*capabilities: str, **fields: Any) -> list[dict[str, Any]]:
    """Return a grant of each capability over `mail`, ana's unless told otherwise."""
    return [{"principal": "ana", "capability": one, "pack": "mail", **fields} for one in capabilities]


def case(verb_key: str, error: str | None = None, args: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return one exec case: it runs, or it is refused with that text, nothing having been minted and nothing run."""
    given = {key: fields.pop(key) for key in ("minted", "ran", "steps") if key in fields}
    expect = {"ok": error is None, "error": error, "ran": error is None, **given}
    asked = {"activation": "a1", "pack_id": "mail", "verb_key": verb_key, "args": args or {}, **fields}
    return {"exec": asked, "expect": expect if error is None else {"minted": False, **expect}}


_MAIL: dict[str, Any] = {"packs": [pack()], "grants": grants(*AXES), "connected": ["ana/mail"], "routes": {}}


def failing(cases: str | list[Any], **sections: Any) -> list[tuple[str, Any, Any]]:
    """Return what does not hold, as `documents.failing` does."""
    return documents.failing(cases, **{**_MAIL, **sections})


def audited(cases: str | list[Any], **sections: Any) -> list[AuditRecord]:
    """Return what the audit holds after the cases, all of which held."""
    return documents.audited(cases, **{**_MAIL, **sections})
