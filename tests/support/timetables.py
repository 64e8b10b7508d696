"""Times of a timetable."""

from __future__ import annotations

from datetime import datetime

from rota.model.timetable import Timetable


def upcoming(
    timetable: Timetable, moment: datetime, anchor: datetime, limit: int
) -> list[datetime]:
    """Return the next times after this moment, at most `limit`."""
    found: list[datetime] = []
    at = timetable.after(moment, anchor)
    while at is not None and len(found) < limit:
        found.append(at)
        at = timetable.after(at, anchor)
    return found
