"""policy.json: operation, land and confirm of every command and trigger (§4)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from runtime_core.closed import Closed, VersionOne
from runtime_core.pack_file import read_document, read_model

Operation = Literal["read", "write"]
Land = Literal["personal", "brain", "local"]


class Privacy(Closed):
    """Where data and effects belong (§4.3)."""

    land: Land


class PolicyEntry(Closed):
    """The rule of one command or trigger (§4.1)."""

    operation: Operation
    privacy: Privacy
    confirm: bool = False

    @property
    def says_confirm(self) -> bool:
        """Whether the entry has a `confirm`, even false: only a write may (§4.5.1)."""
        return "confirm" in self.model_fields_set


class Policy(Closed):
    """The whole file (§4.1); coverage is lint's (§4.4)."""

    surface_id: str
    version: VersionOne
    verbs: dict[str, PolicyEntry]
    stimuli: dict[str, PolicyEntry] = Field(default_factory=dict)


def parse_policy(raw: bytes) -> Policy:
    """Return the policy; raises PackParseError with file `policy`, naming place and reason (§4.0, §4.1)."""
    return read_model(Policy, "policy", read_document("policy", raw))
