"""Times as written on the command line."""

from __future__ import annotations

from datetime import timedelta

from rota.cli.schedules import TimeParameter

HOUR = timedelta(hours=1)


def test_time_parameter_is_read_with_or_without_zone() -> None:
    assert TimeParameter().convert("2026-03-01", None, None).tzinfo is None
    assert TimeParameter().convert("2026-03-01T07:30+01:00", None, None).utcoffset() == HOUR
