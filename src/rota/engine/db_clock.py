"""What time it is by the database's clock, as far as one knows without asking.

It was told some time ago, and how long ago is measured by a clock that only moves forward. Nothing about
jobs is decided by it: it is what a task's own code is told.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta


class DatabaseClock:
    def __init__(self, now: datetime) -> None:
        self.set(now)

    def set(self, now: datetime) -> None:
        self._database_time = now
        self._set_at = time.monotonic()

    def now(self) -> datetime:
        return self._database_time + timedelta(seconds=time.monotonic() - self._set_at)
