"""What a drawing says of a job besides its name, whatever it is drawn with."""

from __future__ import annotations

from dataclasses import dataclass

STATES = (
    "quarantined",
    "failed",
    "expired",
    "cancelled",
    "running",
    "ready",
    "asleep",
    "waiting",
    "succeeded",
    "skipped",
)
"""All a job can be in, those somebody should look at first."""

Edge = tuple[str, str]
"""A parent and a child of it."""


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """What is known of one job. All of it may be missing: a definition has no states."""

    state: str = ""
    detail: str = ""
    """A time, an attempt: `1.2 s, attempt 2`."""
    error: str = ""
    name: str = ""
    """Shown instead of the graph's own name for it."""
    job_count: int = 1
    """How many jobs it stands for."""

    @property
    def known_state(self) -> str:
        """The state as a drawing may use it: a word we have a colour for, or none."""
        return self.state if self.state in STATES else ""

    @property
    def remark(self) -> str:
        return " · ".join(part for part in (self.state, self.detail) if part)


EMPTY_LABEL = NodeLabel()
