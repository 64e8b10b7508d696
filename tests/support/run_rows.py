"""Rows of a run and its jobs, for timelines and graphs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rota.store.read.runs import FlowDetailRow, JobRow

START = datetime(2026, 11, 16, 12, tzinfo=UTC)


def job(state: str, id: int = 2, **more: Any) -> JobRow:
    known: dict[str, Any] = {
        **{"job": id, "task": "f.work", "queue": "default", "state": state, "attempt": 1},
        **{"worker": 1, "since": START, "rule": None, "successors": [], "input_jobs": []},
        **dict.fromkeys(("finished", "seconds", "error", "wakes", "awaits", "done", "total")),
        **{"args": None, "result": None},
    }
    return JobRow(**known | more)


def run(many: int) -> FlowDetailRow:
    return FlowDetailRow(1, "f", "running", 1, START, START, None, None, None, b"{}", None, many)
