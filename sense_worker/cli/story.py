"""How the demo reads at a terminal: numbered chapters, each with its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sense_worker.cli import explained, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Story:
    """Prints chapters as they happen; `silent` prints nothing."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._number = 0

    def tell(self, title: str, facts: Mapping[str, Any]) -> None:
        """Print a chapter: its number and title, then each fact beside its name."""
        if self._silent:
            return
        self._number += 1
        out = render.console()
        out.print(render.styled(f"{self._number}. {title}"), style="bold", soft_wrap=True)
        width = max(len(name) for name in facts)
        for name, value in facts.items():
            label = f"   {name.replace('_', ' '):<{width}}  "
            for line in _lines(render.plain(value)):
                text = render.styled(label).append_text(_coloured(line))
                text.rstrip()
                out.print(text, soft_wrap=True)
                label = " " * len(label)
        out.print()

    def end(self, seconds: float) -> None:
        """Print the last line."""
        render.print_lines([f'All of it happened, in {seconds:g} s. Next: "Install and first steps" in README.md.'])


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict):  # an Explanation, told as `sense-worker explain` tells it
        yield from explained.told(value)
    elif isinstance(value, list):
        yield from (render.shown(one) for one in value)
    else:
        yield render.shown(value)


def _coloured(line: str) -> Any:
    text = render.styled(line)
    for word, style in (("denied", "red"), ("delivered", "green")):
        if f": {word}" in line:
            text.stylize(style)
    return text
