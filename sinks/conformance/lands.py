"""The kit's tests of the land rules (§4.3, DESIGN §6)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sinks.conformance.kit import Kit, arrived, call, fail, handed, look
from sinks.conformance.material import delivery
from sinks.protocol import Delivered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sinks.conformance.given import Given
    from sinks.protocol import Delivery, Outcome, Sink


class LandTests(Kit):
    """Lands and workspaces."""

    def test_every_declared_land_is_taken(self, tmp_path: Path) -> None:
        """A land in `lands` is taken; what it does not take the runtime refuses before the sink sees it."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        folder = given.workspace or _workspace(tmp_path / "conformance")
        taken: list[Delivery] = []
        for land in sink.lands:
            one = delivery(land=land, workspace=str(folder), project="apollo" if land == "brain" else None)
            (outcome,) = handed(given, sink, [one])
            if not isinstance(outcome, Delivered):
                fail(f"deliver answered {outcome!r} for land {land}", f"Leave {land!r} out of `lands` if it takes none")
            taken.append(one)
        look(given, taken, foreign=True)

    def test_nothing_beyond_the_workspace(self, tmp_path: Path) -> None:
        """A `workspace` sink writes beneath the activation's folder, through no link, and makes no folder for it."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        if not sink.workspace:
            return
        _without_a_workspace(given, sink, tmp_path)
        pattern = _workspace(tmp_path / "pattern")
        arrived(given, sink, [_into(sink, pattern)])
        call(sink, "close", sink.close)
        written = sorted(pattern.rglob("*"))
        if not written:
            fail("nothing was written beneath the workspace", "Write there, or answer False from `workspace`")
        for number, there in enumerate(written):
            for name, trap in _TRAPS.items():
                place = tmp_path / f"{number}-{name}"
                self._trapped(given, place, there.relative_to(pattern), trap, is_folder=there.is_dir())

    def _trapped(
        self, given: Given, place: Path, inner: Path, trap: Callable[[Path, Path], None], *, is_folder: bool
    ) -> None:
        folder, outside = _workspace(place / "in"), place / "outside"
        (outside / "folder").mkdir(parents=True)
        (outside / "file").write_text("theirs\n")
        (folder / inner).parent.mkdir(parents=True, exist_ok=True)
        target = outside / ("folder" if is_folder else "file")
        try:
            trap(folder / inner, target)
        except OSError:  # no hard link to a folder
            return
        before = _tree(outside)
        sink = self.opened(given)
        handed(given, sink, [_into(sink, folder)])
        call(sink, "close", sink.close)
        if _tree(outside) != before:
            fail(
                f"a link in the place of {inner} in the workspace was followed, and something outside was written",
                "Open every folder and file with O_NOFOLLOW (dir_fd), and refuse files with a second name",
            )


def _symlink(place: Path, target: Path) -> None:
    place.symlink_to(target)


def _dangling(place: Path, target: Path) -> None:
    place.symlink_to(target.with_name("made"))


def _hard_link(place: Path, target: Path) -> None:
    os.link(target, place)


_TRAPS = {"symlink": _symlink, "dangling": _dangling, "hard-link": _hard_link}


def _without_a_workspace(given: Given, sink: Sink, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for workspace in (None, str(gone)):
        outcome: Outcome = handed(given, sink, [delivery(land=sink.lands[0], workspace=workspace)])[0]
        if isinstance(outcome, Delivered) or gone.exists():
            what = "that is missing" if workspace else "of an activation without one"
            fail(f"deliver answered {outcome!r} for a workspace {what}", "Answer Rejected or Retry, and make no folder")


def _workspace(at: Path) -> Path:
    folder = at / "workspace"
    folder.mkdir(parents=True)
    return folder


def _into(sink: Sink, folder: Path) -> Delivery:
    return delivery(land=sink.lands[-1], workspace=str(folder))


def _tree(folder: Path) -> dict[str, bytes | None]:
    found = sorted(folder.rglob("*"))
    return {str(one.relative_to(folder)): one.read_bytes() if one.is_file() else None for one in found}
