"""Problems of the fleet as a short list with links, the worst first.

A problem that an open alert reports is not listed again. Each kind has at most MAX_LINES lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from urllib.parse import quote

from rota.model.alert_rules import QUARANTINE, QUEUE_OLD, SCHEDULE_FAILS, SCHEDULE_LATE
from rota.model.text import counted
from rota.store.metrics import FleetTotals
from rota.store.queues import PauseRow, UnservedTaskRow
from rota.store.read.coordination import AlertRow
from rota.store.read.metrics import ProblemScheduleRow

MAX_LINES = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """A line of the list."""

    key: str
    kind: str
    text: str
    path: str
    """Page with the details."""
    query: dict[str, str] = field(default_factory=dict)
    since: datetime | None = None
    detail: str = ""


def list_problems(
    fleet: FleetTotals,
    alerts: Sequence[AlertRow],
    unserved: Sequence[UnservedTaskRow],
    problem_schedules: Sequence[ProblemScheduleRow],
    paused: Sequence[PauseRow] = (),
) -> list[Problem]:
    alerted = {(each.kind, each.subject) for each in alerts}
    return [
        *_alerts(fleet, alerts),
        *_quarantine(fleet, {kind for kind, _ in alerted}),
        # The alert of an overdue queue already names its first task.
        *_unserved([each for each in unserved if (QUEUE_OLD, each.queue) not in alerted]),
        *_silent(fleet),
        *_paused(paused),
        *_schedules(problem_schedules, alerted),
    ]


def _alerts(fleet: FleetTotals, alerts: Sequence[AlertRow]) -> Iterator[Problem]:
    for each in alerts[:MAX_LINES]:
        yield Problem(
            f"alert-{each.id}",
            each.kind,
            each.subject,
            "/alerts",
            since=each.raised,
            detail=each.message,
        )
    more = sum(fleet.alerts.values()) - MAX_LINES
    if more > 0:
        text = counted(more, "more alert is open", "more alerts are open")
        yield Problem("alerts", "alerts", text, "/alerts")


def _quarantine(fleet: FleetTotals, kinds: set[str]) -> Iterator[Problem]:
    if fleet.quarantined and QUARANTINE not in kinds:
        text = counted(fleet.quarantined, "job is in quarantine", "jobs are in quarantine")
        yield Problem("quarantine", "quarantine", text, "/runs", {"state": "quarantined"})


def _unserved(unserved: Sequence[UnservedTaskRow]) -> Iterator[Problem]:
    for each in unserved[:MAX_LINES]:
        yield Problem(
            f"unserved {each.queue} {each.task}",
            "no worker",
            f"{each.task} in queue {each.queue}",
            "/queues",
            since=each.created,
            detail=f"cannot run: {each.reason}",
        )
    more = len(unserved) - MAX_LINES
    if more > 0:
        text = counted(more, "more task is", "more tasks are") + " not served by any worker"
        yield Problem("unserved", "no worker", text, "/queues")


def _silent(fleet: FleetTotals) -> Iterator[Problem]:
    silent = fleet.workers.get("silent", 0)
    if silent:
        text = counted(silent, "worker is", "workers are") + " silent"
        yield Problem("silent", "workers", text, "/workers")


def _paused(paused: Sequence[PauseRow]) -> Iterator[Problem]:
    for each in paused[:MAX_LINES]:
        path = f"/queues/{quote(each.queue, safe='')}"
        text = "is paused: its jobs are not claimed"
        yield Problem(
            f"paused {each.queue}", "queue", each.queue, path, since=each.since, detail=text
        )
    more = len(paused) - MAX_LINES
    if more > 0:
        text = counted(more, "more queue is paused", "more queues are paused")
        yield Problem("paused", "queue", text, "/queues")


_FAILED_ONCE = "failed the last time"
_SCHEDULE_PROBLEMS = {
    "late": "is late",
    "missed": "was missed {times} within a day",
    "refused": "was refused {times} within a day",
    "failing": "has failed {times} in a row",
    "stopped": "is paused: it failed {times} in a row",
}


def _schedules(
    problem_schedules: Sequence[ProblemScheduleRow], alerted: set[tuple[str, str]]
) -> Iterator[Problem]:
    for problem, found in groupby(problem_schedules, lambda each: each.problem):
        alert_kinds = (SCHEDULE_LATE,) if problem == "late" else (SCHEDULE_FAILS,)
        unreported = [
            each for each in found if not alerted & {(kind, each.name) for kind in alert_kinds}
        ]
        for each in unreported[:MAX_LINES]:
            yield Problem(
                f"schedule {problem} {each.name}",
                "schedule",
                each.name,
                f"/schedules/{quote(each.name, safe='')}",
                since=each.since,
                detail=_FAILED_ONCE
                if problem == "failing" and each.count == 1
                else _describe(each),
            )
        if len(unreported) > MAX_LINES:
            yield Problem(
                f"schedules {problem}", "schedule", _MORE_SCHEDULES[problem], "/schedules"
            )


_MORE_SCHEDULES = {
    "late": "more schedules are late",
    "missed": "more schedules were missed within a day",
    "refused": "more schedules were refused within a day",
    "failing": "more schedules fail",
    "stopped": "more schedules are paused because they failed",
}


def _describe(schedule: ProblemScheduleRow) -> str:
    return _SCHEDULE_PROBLEMS[schedule.problem].format(times=counted(schedule.count, "time"))
