"""The checks a sink class passes when it is registered, so that a mistake shows at the start, not at a delivery.

Each refusal is one sentence that names the class, the method or attribute, and the argument or the values it may have.
Arguments are counted, not named: the runtime passes them by position.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from sinks.one_by_one import OneByOne
from sinks.protocol import LANDS, SINK_CONTRACT, Sink

if TYPE_CHECKING:
    from collections.abc import Callable

KIND = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
DEADLINE_LIMIT_S = 3600.0
"""A lease outlives the deadline by 10 s, and a dead worker's rows come back only then."""
CONCURRENCY_LIMIT = 256
BATCH_LIMIT = 5000
"""Rows of one ledger transaction (DESIGN §6)."""

METHODS: dict[str, tuple[str, ...]] = {
    "__init__": ("name", "options"),
    "open": (),
    "deliver": ("batch",),
    "close": (),
}
"""What every sink has, with the arguments the runtime gives after `self`."""
OPTIONAL_METHODS: dict[str, tuple[str, ...]] = {
    "admit": ("host",),
    "probe": (),
}
"""What a sink may have besides."""


class Misdeclared(Exception):
    """A class that is no sink of this contract; the text says what is wrong where."""


def check(plugin: object, *, built_in: bool) -> type[Sink]:
    """Return the class, checked against the contract; raises Misdeclared with the first mistake."""
    if not isinstance(plugin, type):
        raise Misdeclared(f"{_short(plugin)} is no class")
    # Looked at by name: what it declares is not known before it is checked.
    declared: Any = plugin
    name = plugin.__qualname__
    _contract(name, getattr(declared, "contract", None))
    for attribute, (holds, wanted) in _ATTRIBUTES.items():
        value = getattr(declared, attribute, None)
        if not holds(value):
            raise Misdeclared(f"{name}.{attribute} is {_short(value)}, not {wanted}")
    _options(name, declared.Options)
    if inspect.isabstract(declared):
        raise Misdeclared(f"{name} leaves {', '.join(sorted(declared.__abstractmethods__))} abstract")
    for method, arguments in METHODS.items():
        _method(plugin, method, arguments)
    for method, arguments in OPTIONAL_METHODS.items():
        if inspect.getattr_static(plugin, method, None) is not None:
            _method(plugin, method, arguments)
    _one_by_one(plugin)
    _workspace(plugin)
    _keyed(plugin, declared.Options)
    _write(plugin, transactional=declared.transactional, built_in=built_in)
    return plugin


def _contract(name: str, version: object) -> None:
    # By type and value: True is not version 1.
    if type(version) is not int or version != SINK_CONTRACT:
        raise Misdeclared(f"{name}.contract is {_short(version)}; this runtime speaks sink contract {SINK_CONTRACT}")


def _is_kind(value: object) -> bool:
    return isinstance(value, str) and KIND.fullmatch(value) is not None


def _is_model(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _is_lands(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(v in LANDS for v in value) and len({*value}) == len(value)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_deadline(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= DEADLINE_LIMIT_S


def _whole(limit: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= limit


_ATTRIBUTES: dict[str, tuple[Callable[[object], bool], str]] = {
    "kind": (_is_kind, f"a text {KIND.pattern}"),
    "Options": (_is_model, "a pydantic model"),
    "lands": (_is_lands, f"a tuple of {', '.join(LANDS)}"),
    "partitioned": (_is_flag, "True or False"),
    "transactional": (_is_flag, "True or False"),
    "local": (_is_flag, "True or False"),
    "deadline_s": (_is_deadline, f"seconds, over 0 and up to {DEADLINE_LIMIT_S:g}"),
    "concurrency": (_whole(CONCURRENCY_LIMIT), f"an integer from 1 to {CONCURRENCY_LIMIT}"),
    "batch_size": (_whole(BATCH_LIMIT), f"an integer from 1 to {BATCH_LIMIT}"),
}


def _options(name: str, options: type[BaseModel]) -> None:
    options.model_rebuild()  # a forward reference that leads nowhere raises here
    if options.model_config.get("extra") != "forbid":
        raise Misdeclared(f"{name}.Options lets unknown options pass; it wants ConfigDict(extra='forbid')")


def _method(plugin: type, method: str, arguments: tuple[str, ...]) -> None:
    where = f"{plugin.__qualname__}.{method}"
    function = inspect.getattr_static(plugin, method, None)
    # The stubs of the Protocol do nothing and answer None.
    if function is None or function is inspect.getattr_static(Sink, method, None):
        raise Misdeclared(f"{plugin.__qualname__} has no method {method}({', '.join(('self', *arguments))})")
    if function is object.__init__:
        raise Misdeclared(f"{where} takes no argument {arguments[0]!r}")
    bound = not isinstance(function, (staticmethod, classmethod, property)) and hasattr(function, "__get__")
    if not bound or not callable(function):
        raise Misdeclared(f"{where} is no method but {_short(function)}")
    if _is_lazy(function):
        raise Misdeclared(f"{where} is a coroutine or generator; it has to do its work when it is called")
    _arguments(where, inspect.signature(function), ("self", *arguments))


def _arguments(where: str, signature: inspect.Signature, given: tuple[str, ...]) -> None:
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    if len(positional) < len(given) and all(p.kind is not p.VAR_POSITIONAL for p in parameters):
        raise Misdeclared(f"{where} takes no argument {given[len(positional)]!r}")
    for parameter in (*positional[len(given) :], *(p for p in parameters if p.kind is p.KEYWORD_ONLY)):
        if parameter.default is parameter.empty:
            raise Misdeclared(f"{where} wants an argument {parameter.name!r} that the runtime does not give")


def _one_by_one(plugin: type) -> None:
    """A OneByOne has its own `deliver_one`, unless it has its own `deliver`."""
    if not issubclass(plugin, OneByOne) or inspect.getattr_static(plugin, "deliver") is not OneByOne.deliver:
        return
    if plugin.deliver_one is OneByOne.deliver_one:
        raise Misdeclared(f"{plugin.__qualname__} has no method deliver_one(self, delivery)")
    _method(plugin, "deliver_one", ("delivery",))


def _workspace(plugin: type) -> None:
    found = inspect.getattr_static(plugin, "workspace", None)
    if found is None or found is inspect.getattr_static(Sink, "workspace"):
        raise Misdeclared(f"{plugin.__qualname__} has no property workspace")
    if not isinstance(found, (property, bool)):
        raise Misdeclared(f"{plugin.__qualname__}.workspace is {_short(found)}, not a property")


def _keyed(plugin: type, options: type[BaseModel]) -> None:
    """`secret_options` and `renew` go together; `renew` is asked for a first secret before there are valid options."""
    name = plugin.__qualname__
    named: object = getattr(plugin, "secret_options", None)
    renew = inspect.getattr_static(plugin, "renew", None)
    if named is None and renew is None:
        return
    known = isinstance(named, tuple) and bool(named) and all(one in options.model_fields for one in named)
    if not known:
        raise Misdeclared(f"{name}.secret_options is {_short(named)}, not a tuple of options")
    if not isinstance(renew, classmethod):
        raise Misdeclared(f"{name} has no class method renew(cls, options, now, until)")
    _arguments(f"{name}.renew", inspect.signature(renew.__func__), ("cls", "options", "now", "until"))


def _write(plugin: type, *, transactional: bool, built_in: bool) -> None:
    """`write` and `transactional` go together: a method that happens to have the name must not be taken for it."""
    name = plugin.__qualname__
    writes = inspect.getattr_static(plugin, "write", None) is not None
    if not built_in and (writes or transactional):
        what = "has a method write" if writes else "is transactional"
        raise Misdeclared(f"{name} {what}, which contract {SINK_CONTRACT} keeps for built-in kinds")
    if writes != transactional:
        raise Misdeclared(f"{name}.write and {name}.transactional go together")
    if transactional:
        _method(plugin, "write", ("batch", "rows"))


def _is_lazy(function: Callable[..., object]) -> bool:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_kind(function) for is_kind in kinds)


def _short(value: object) -> str:
    return f"{value!r:.60}"
