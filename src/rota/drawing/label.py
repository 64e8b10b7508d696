"""Label of a job in a drawing, in addition to its name."""

from __future__ import annotations

from dataclasses import dataclass

STATES = (
    "quarantined",
    "failed",
    "expired",
    "cancelled",
    "running",
    "queued",
    "sleeping",
    "waiting",
    "succeeded",
    "skipped",
)
"""Job states, the most urgent first."""


def urgency(state: str) -> int:
    """Return the place of a state in STATES; an unknown state is the least urgent."""
    return STATES.index(state) if state in STATES else len(STATES)


Edge = tuple[str, str]
"""A predecessor and its successor."""


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """Label of one job. Every field may be empty: the drawing of a definition has no states."""

    state: str = ""
    detail: str = ""
    """Duration or attempt: `1.2 s, attempt 2`."""
    error: str = ""
    name: str = ""
    """Text shown in place of the name in the graph."""
    job_count: int = 1
    """Number of jobs the label represents."""

    @property
    def known_state(self) -> str:
        """The state if there is a colour for it, otherwise ""."""
        return self.state if self.state in STATES else ""

    @property
    def remark(self) -> str:
        return " · ".join(part for part in (self.state, self.detail) if part)


EMPTY_LABEL = NodeLabel()
