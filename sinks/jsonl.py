"""The `jsonl` sink: one JSON line a delivery, in one file or in each activation's workspace (§4.3.local).

At least once: a crash between the write and the settling, a retry after a failed `fsync`, and a replay write a line
again under the same `id`. Within a line the order of names is fixed, so that text tools can read it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from runtime_core.errors import UsageError
from sinks.append import NotPlain, append, folder, folder_beneath
from sinks.line import json_line
from sinks.protocol import Delivered, Outcome, Rejected, Retry, SinkBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.protocol import Delivery

WORKSPACE_FILE = ".sense/events.jsonl"
_DEEPEST = 2
"""Components of `file`: a name, or a folder and a name."""

LOCK_WAIT_S = 5.0
"""How long one `deliver` waits for other writers of its file: a batch takes milliseconds, so this is a stuck one."""
WORKSPACE_LOCK_WAIT_S = 0.5
"""The same for all workspaces of a batch: their owners' tools can hold locks there, and others wait behind them."""

_DELIVERED = Delivered()


class JsonlOptions(BaseModel):
    """Either `path`, or `workspace` with perhaps `file`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    path: str = ""
    """Absolute path of the file; its folder exists."""
    workspace: bool = False
    """Write into the workspace folder of the activation that announced the event."""
    file: str = WORKSPACE_FILE
    """Beneath the workspace folder: a name, or a folder and a name."""
    fsync: bool = True
    """Answer only when the lines are on the disk."""

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        # normpath leaves two slashes at the beginning alone, and nowhere else.
        if not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path or path == "/":
            raise ValueError("is no absolute path of a file without `.`, `..` and doubled slashes")
        return _plain(path)

    @field_validator("file")
    @classmethod
    def _beneath(cls, file: str) -> str:
        parts = file.split("/")
        if len(parts) > _DEEPEST or any(part in {"", ".", ".."} for part in parts):
            raise ValueError("is no file name or folder/name beneath the workspace")
        return _plain(file)

    @model_validator(mode="after")
    def _one_of_both(self) -> JsonlOptions:
        if self.workspace == bool(self.path):
            raise ValueError("wants one of path=/absolute/file and workspace=true")
        if self.path and "file" in self.model_fields_set:
            raise ValueError("takes `file` with workspace=true only")
        return self


class Jsonl(SinkBase):
    """Appends whole lines; safe for many processes on one file."""

    kind: ClassVar[str] = "jsonl"
    Options: ClassVar[type[BaseModel]] = JsonlOptions
    local: ClassVar[bool] = True
    batch_size: ClassVar[int] = 500

    def __init__(self, name: str, options: JsonlOptions) -> None:
        super().__init__(name, options)
        self._path = PurePosixPath(options.path) if options.path else None
        self._beneath = tuple(options.file.split("/"))
        self._fsync = options.fsync

    @property
    def workspace(self) -> bool:
        """Whether it writes under the activation's workspace and nowhere else."""
        return self._path is None

    def open(self) -> None:
        """Raise UsageError where the folder of `path` is not there: no delivery could succeed."""
        if self._path is not None and not Path(self._path.parent).is_dir():
            folder = self._path.parent
            raise UsageError("options.path", f"there is no folder {folder}", f"make it first: mkdir -p {folder}")

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Append one line a delivery: a file takes the lines of the batch whole, or none of them (Retry)."""
        outcomes: list[Outcome] = [_DELIVERED] * len(batch)
        lines: dict[str, list[tuple[int, bytes]]] = {}
        for index, delivery in enumerate(batch):
            root = self._root(delivery)
            if root is None:
                outcomes[index] = Rejected("the activation has no workspace folder")
                continue
            try:
                lines.setdefault(root, []).append((index, json_line(delivery)))
            except ValueError as error:
                outcomes[index] = Rejected(f"the event does not become a line: {error}")
        give_up = time.monotonic() + (WORKSPACE_LOCK_WAIT_S if self.workspace else LOCK_WAIT_S)
        for root, numbered in lines.items():
            outcome = self._append(root, b"".join(line for _, line in numbered), give_up)
            for index, _ in numbered:
                outcomes[index] = outcome
        return outcomes

    def _root(self, delivery: Delivery) -> str | None:
        if self._path is not None:
            return str(self._path.parent)
        workspace = delivery.workspace
        return workspace if workspace is not None and workspace.startswith("/") else None

    def _append(self, root: str, lines: bytes, give_up: float) -> Outcome:
        try:
            if self._path is not None:
                with folder(root) as within:
                    append(within, self._path.name, lines, give_up=give_up, follow=True, fsync=self._fsync)
            else:
                *inner, name = self._beneath
                with folder_beneath(root, inner) as within:
                    append(within, name, lines, give_up=give_up, follow=False, fsync=self._fsync)
        except ValueError:  # a NUL or a lone surrogate in it
            return Rejected("the workspace folder of the activation is no path")
        except NotPlain as error:
            # An operator repairs his own path; what a tool put into a workspace is not waited for.
            return Retry(str(error)) if self._path is not None else Rejected(str(error))
        except OSError as error:
            where = self._path or "/".join(self._beneath)
            return Retry(f"{where}: {error.strerror or type(error).__name__}")
        return _DELIVERED


def _plain(path: str) -> str:
    """Return the path; raises ValueError for a text that is no path on any file system."""
    if not path.isprintable():
        raise ValueError("holds a control character")
    if any(len(part.encode()) > 255 for part in path.split("/")):  # noqa: PLR2004 - NAME_MAX
        raise ValueError("holds a name over 255 bytes")
    return path
