"""Composite: a command made of commands; each step walks the whole pipeline when its turn comes (DESIGN §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runtime_core.envelope import Envelope
from runtime_core.execution import execute
from runtime_core.runtime import Ran

if TYPE_CHECKING:
    from runtime_core.execution import Call
    from runtime_core.runtime import Runtime

_ABSENT = object()


class CompositeAdapter:
    """Runs the steps in order and stops at the first that fails; says what was done and what was not (C34)."""

    def run(self, call: Call, runtime: Runtime) -> Ran:
        """Run the steps; the pre-flight of the whole tree has passed. The result lists one entry a step that ran."""
        steps = call.chosen.verb.steps
        asked = call.facts.envelope
        confirm = {"confirm": True} if asked.says_confirm else {}
        done: list[dict[str, Any]] = []
        for index, step in enumerate(steps):
            args = {**_filled(step.args, asked.own_args, done), **confirm}
            envelope = Envelope(step.pack_id or asked.pack_id, step.verb_key, args)
            answer = execute(runtime, call.facts._replace(envelope=envelope), call.depth + 1).envelope()
            done.append(answer.plain())
            if not answer.ok:
                skipped = [later.verb_key for later in steps[index + 1 :]]
                place = f"step {index + 1} of {len(steps)}: {step.verb_key}"
                return Ran({"steps": done, "skipped": skipped}, f"{answer.error} ({place})")
        return Ran({"steps": done})


def _filled(args: dict[str, Any], given: dict[str, Any], done: list[dict[str, Any]]) -> dict[str, Any]:
    """Fill in `{"$arg": NAME}` and `{"$step": [INDEX, KEY…]}`; what is absent is left out."""
    filled = {name: _value(value, given, done) for name, value in args.items()}
    return {name: value for name, value in filled.items() if value is not _ABSENT}


def _value(value: Any, given: dict[str, Any], done: list[dict[str, Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    if "$arg" in value:
        return given.get(value["$arg"], _ABSENT)
    if "$step" not in value:
        return value
    index, *path = value["$step"]
    found: Any = done[index].get("result", _ABSENT)
    for key in path:
        if isinstance(found, dict) and isinstance(key, str):
            found = found.get(key, _ABSENT)
        elif isinstance(found, list) and isinstance(key, int) and 0 <= key < len(found):
            found = found[key]
        else:
            return _ABSENT
    return found
