"""Estimate of the database's time without a query.

The last known database time is advanced by a monotonic clock. Decisions about jobs never use it; only
the code of tasks reads it.
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
