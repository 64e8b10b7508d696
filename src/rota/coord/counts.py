"""What is counted of coordinating, in one event loop: plain numbers, read by whoever shows them."""

from __future__ import annotations

from rota.model.events import (
    Event,
    LeaderElected,
    LeadershipEnded,
    LockAcquired,
    LockForfeited,
)
from rota.model.histogram import Histogram


class CoordinationCounters:
    """Told from any thread; that a count is off by one for a moment hurts nobody."""

    def __init__(self) -> None:
        self.locks_acquired = self.locks_lost = 0
        self.elections_won = self.terms_lost = 0
        self.wait_seconds = Histogram()
        """How long was waited for what was not free at once."""

    def count(self, event: Event) -> None:
        match event:
            case LockAcquired():
                self.locks_acquired += 1
            case LockForfeited():
                self.locks_lost += 1
            case LeaderElected():
                self.elections_won += 1
            case LeadershipEnded(reason=reason) if reason:
                self.terms_lost += 1
