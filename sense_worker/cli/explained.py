"""How an explanation reads: the event, then each route with the steps it passed and the one that ended it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sense_worker.cli.render import cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PLAIN = {"passed", "not reached", "waits", "recorded"}


def told(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a plain Explanation: its parts, a blank line between them."""
    for number, part in enumerate(_parts(row)):
        if number:
            yield ""
        yield from part


def _parts(row: Mapping[str, Any]) -> Iterator[Iterable[str]]:
    if row["accepted_at"]:
        yield _event(row)
    if row["without"]:
        yield [_without(text, count) for text, count in row["without"].items()]
    yield from (_route(route) for route in row["routes"])
    yield from (_refusal(refusal) for refusal in row["refusals"])


def _without(text: str, count: int) -> str:
    if text == "no route":
        return "no route: nobody asked for this trigger"
    return f"no delivery for {count} matching route{'s' if count > 1 else ''}: {text}"


def _event(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"event {row['id'].partition('.')[0]}"
    yield f"  {row['ref']} of {row['pack_id']}, announced by {row['publisher']} in tenant {row['tenant']}"
    yield f"  accepted {cell(row, 'accepted_at')}, message {row['message_id']}, entry {row['stream_id']}"
    for name in ("project", "subject"):
        if row[name]:
            yield f"  {name} {row[name]}"
    if not row["complete"]:
        yield f"  {len(row['routes'])} of its routes have their row; the rest is still to be written"
    if row["repeats"]:
        yield f"  announced again {row['repeats']} times under the same message id: still one event"


def _route(route: Mapping[str, Any]) -> Iterator[str]:
    yield f"{route['owner']} -> {route['sink']}: {route['state']}"
    yield f"  delivery     {route['delivery_id']}"
    clause = f" [{route['clause']}]" if route["clause"] else ""
    by_outcome: dict[str, list[str]] = {}
    for step in route["steps"]:
        by_outcome.setdefault(step["outcome"], []).append(step["name"])
    for outcome, names in by_outcome.items():
        if outcome in _PLAIN:
            yield f"  {outcome:<11}  {', '.join(names)}"
        else:
            decided = "" if route["grant_id"] else clause  # of a refusal; with a grant the clause is the grant's
            yield f"  ended at     {', '.join(names)}: {outcome}{decided}"
    if route["text"] and route["text"] not in by_outcome:
        yield f"  because      {route['text']}"
    if route["way_out"]:
        yield f"  what to do   {route['way_out']}"
    if route["grant_id"]:
        yield f"  grant        {route['grant_id']}{clause}"
    if route["digest"]:
        yield f"  pack digest  {route['digest']}"
    if route["due_at"]:
        yield f"  next try     {cell(route, 'due_at')}"
    for attempt in route["attempts"]:
        reason = f": {attempt['reason']}" if attempt["reason"] else ""
        yield f"  attempt {attempt['attempt']:<4} {attempt['state']} by {attempt['by']}{reason}"


def _refusal(refusal: Mapping[str, Any]) -> Iterator[str]:
    yield f"entry {refusal['stream_id']} of {refusal['stream']}"
    yield f"  {refusal['text']}: {refusal['detail']}"
    if refusal["activation_id"]:
        yield f"  activation {refusal['activation_id']}"
