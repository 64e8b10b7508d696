"""What is counted of coordinating, in one event loop: plain numbers, read by whoever shows them."""

from __future__ import annotations

from rota.model.events import (
    Event,
    LeaderDeposed,
    LeaderElected,
    LockAcquired,
    LockForfeited,
)
from rota.model.histogram import Histogram


class Counts:
    """Told from any thread; that a count is off by one for a moment hurts nobody."""

    def __init__(self) -> None:
        self.acquired = self.lost = 0
        self.elected = self.deposed = 0
        self.waits = Histogram()
        """How long was waited for what was not free at once."""

    def hear(self, event: Event) -> None:
        match event:
            case LockAcquired():
                self.acquired += 1
            case LockForfeited():
                self.lost += 1
            case LeaderElected():
                self.elected += 1
            case LeaderDeposed(why=why) if why:
                self.deposed += 1
