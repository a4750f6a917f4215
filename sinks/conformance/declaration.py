"""The kit's tests of what a sink declares."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from runtime_core.errors import UsageError
from sinks.conformance.kit import Kit, built, fail, held, settled
from sinks.options import holds, secret_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic import BaseModel

SECRET_NAME = re.compile(r"secret|token|passw|api_?key|credential|private_?key|signing|^auth", re.IGNORECASE)
"""Names of options that look like a secret."""


class DeclarationTests(Kit):
    """Class, options and construction."""

    def test_the_class_is_declared_right(self, tmp_path: Path) -> None:
        """The class meets the contract, and its options are what its model takes."""
        given = self.make(tmp_path)
        try:
            built(given)
        except UsageError as error:
            fail(f"the sink cannot be built: {error}", "Give options that its `Options` takes, as JSON values")

    def test_an_unknown_option_is_refused(self, tmp_path: Path) -> None:
        """A misspelt option is refused when the sink is added, not silently left out."""
        given = self.make(tmp_path)
        try:
            given.sink.Options.model_validate({**given.options, "no_such_option": 1})  # type: ignore[attr-defined]
        except ValueError:
            return
        fail("an option that does not exist is taken", "Give `Options` model_config = ConfigDict(extra='forbid')")

    def test_secret_options_are_typed(self, tmp_path: Path) -> None:
        """An option that looks like a secret by its name and is plain text is warned of."""
        options = self.make(tmp_path).sink.Options  # type: ignore[attr-defined]
        plain = [name for name, secret in secret_fields(options) if not secret]
        if plain:
            warnings.warn(
                f"options that look like secrets are plain text: {', '.join(plain)}; declare them as SecretStr, "
                "so that no repr, traceback or log shows them",
                stacklevel=1,
            )

    def test_building_takes_nothing(self, tmp_path: Path) -> None:
        """A sink is also built to look at its options, and never opened then: that opens no file and starts nothing."""
        given = self.make(tmp_path)
        built(given)
        before = held()
        sink = built(given)
        if any(now > earlier for now, earlier in zip(settled(held, before), before, strict=True)):
            fail(
                f"{type(sink).__qualname__}.__init__ opened a file or connection, or started a thread",
                "Keep name and options in __init__, and connect in `open`",
            )


def secret_fields(options: type[BaseModel]) -> Iterator[tuple[str, bool]]:
    """Return the options that are secret by type (True), or only look so by their name (False)."""
    secret = secret_names(options)
    for name, field in options.model_fields.items():
        if name in secret:
            yield name, True
        elif SECRET_NAME.search(name) and holds(field.annotation, str):
            yield name, False
