"""What the files of a pack have in common: names, limit, and faults that name their place (§4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from runtime_core.closed import Misfit, fit
from runtime_core.errors import DoorError, PackParseError
from runtime_core.exact_json import pointer
from runtime_core.strict_json import parse_object

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_NAMES = {"surface": "surface.json", "policy": "policy.json", "harness": "HARNESS.md"}
"""The three files of a pack (§1.2), by the word that errors use, in the order in which they are judged."""
FILE_LIMIT = 1024 * 1024
"""Bytes of one pack file (DESIGN §4)."""

_Model = TypeVar("_Model", bound=BaseModel)


def read_document(file: str, raw: bytes) -> dict[str, Any]:
    """Return the object that a JSON file of a pack holds; raises PackParseError."""
    try:
        return parse_object(raw, limit=FILE_LIMIT, what=FILE_NAMES[file])
    except DoorError as error:
        raise PackParseError(file, error.place, error.reason, error.way_out) from None


def read_model(model: type[_Model], file: str, document: dict[str, Any]) -> _Model:
    """Return the document as its model; raises PackParseError with every fault."""
    try:
        return fit(model, document)
    except Misfit as misfit:
        raise faulty(file, misfit.faults) from None


def faulty(file: str, faults: Sequence[tuple[Sequence[str | int], str]]) -> PackParseError:
    """Return the error for places of a JSON file of a pack, each as steps and reason; one at least."""
    (place, reason), *more = [(f"{FILE_NAMES[file]} {pointer(steps)}".rstrip(), reason) for steps, reason in faults]
    return PackParseError(file, place, reason, more=more)
