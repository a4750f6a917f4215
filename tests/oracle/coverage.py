"""How often each outcome was decided: what shows that the worlds reach every refusal."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

NAMED = ("pack not installed", "trigger not declared", "pack not activated", "unknown command", "not connected")


def coverage(results: Iterable[dict[str, Any]]) -> Counter[str]:
    """The decisions among results of `expected`, by outcome without the names in it; steps decide nothing."""
    counts: Counter[str] = Counter()
    for result in results:
        if "installed" in result:
            counts["available"] += 1
        elif "minted" in result:
            counts["exec " + _without_names(result["error"] or "ok")] += 1
        elif "ok" in result:
            counts["install " + (result["error"] or "ok")] += 1
        elif "refused" in result:
            counts["refused " + result["refused"]] += 1
        elif "repeat" in result:
            counts["repeat"] += 1
        else:
            counts.update(_without_names(outcome) for outcome in result.values())
    return counts


def _without_names(text: str) -> str:
    for beginning in NAMED:
        if text.startswith(beginning):
            return beginning
    return text.split(" for ", maxsplit=1)[0]
