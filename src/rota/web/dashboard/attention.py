"""What needs attention, as few lines that lead to where it can be seen to: what is worst first, what an
alert tells of told once, and of what there is much only the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from urllib.parse import quote

from rota.model.rules import QUARANTINE, QUEUE_OLD, SCHEDULE_FAILS, SCHEDULE_LATE
from rota.store.history import Troubled, Unserved
from rota.store.meters import Fleet
from rota.store.queues import Pause
from rota.store.standing import AlertLine
from rota.web.dashboard.shown import number

FEW = 4
"""Lines of one kind."""


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that somebody should look at."""

    key: str
    kind: str
    words: str
    to: str
    """Where there is more of it."""
    query: dict[str, str] = field(default_factory=dict)
    since: datetime | None = None
    detail: str = ""


def concerns(
    fleet: Fleet,
    alerts: Sequence[AlertLine],
    unserved: Sequence[Unserved],
    troubled: Sequence[Troubled],
    paused: Sequence[Pause] = (),
) -> list[Concern]:
    told = {(each.kind, each.subject) for each in alerts}
    return [
        *_alerts(fleet, alerts),
        *_quarantine(fleet, {kind for kind, _ in told}),
        # What is first in a queue that is too old, the alert names.
        *_unserved([each for each in unserved if (QUEUE_OLD, each.queue) not in told]),
        *_silent(fleet),
        *_paused(paused),
        *_schedules(troubled, told),
    ]


def _alerts(fleet: Fleet, alerts: Sequence[AlertLine]) -> Iterator[Concern]:
    for each in alerts[:FEW]:
        yield Concern(
            f"alert-{each.id}",
            each.kind,
            each.subject,
            "/alerts",
            since=each.raised,
            detail=each.message,
        )
    more = sum(fleet.alerts.values()) - FEW
    if more > 0:
        words = _many(more, "more alert is open", "more alerts are open")
        yield Concern("alerts", "alerts", words, "/alerts")


def _quarantine(fleet: Fleet, kinds: set[str]) -> Iterator[Concern]:
    if fleet.quarantined and QUARANTINE not in kinds:
        words = _many(fleet.quarantined, "job is in quarantine", "jobs are in quarantine")
        yield Concern("quarantine", "quarantine", words, "/runs", {"state": "quarantined"})


def _unserved(unserved: Sequence[Unserved]) -> Iterator[Concern]:
    for each in unserved[:FEW]:
        yield Concern(
            f"unserved {each.queue} {each.task}",
            "no worker",
            f"{each.task} in queue {each.queue}",
            "/queues",
            since=each.created,
            detail="is known to no worker that serves the queue"
            if each.serving
            else "waits, and no worker serves the queue",
        )
    more = len(unserved) - FEW
    if more > 0:
        words = _many(more, "more task is", "more tasks are") + " not taken by any worker"
        yield Concern("unserved", "no worker", words, "/queues")


def _silent(fleet: Fleet) -> Iterator[Concern]:
    silent = fleet.workers.get("silent", 0)
    if silent:
        words = _many(silent, "worker has", "workers have") + " not been heard of lately"
        yield Concern("silent", "workers", words, "/workers")


def _paused(paused: Sequence[Pause]) -> Iterator[Concern]:
    for each in paused[:FEW]:
        to = f"/queues/{quote(each.queue, safe='')}"
        words = "is paused: nobody takes its jobs"
        yield Concern(
            f"paused {each.queue}", "queue", each.queue, to, since=each.since, detail=words
        )
    more = len(paused) - FEW
    if more > 0:
        words = _many(more, "more queue is paused", "more queues are paused")
        yield Concern("paused", "queue", words, "/queues")


_ONCE = "failed the last time"
_TROUBLE = {
    "late": "is late",
    "missed": "was missed {times} within a day",
    "refused": "was refused {times} within a day",
    "failing": "has failed {times} in a row",
    "stopped": "is paused: it failed {times} in a row",
}


def _schedules(troubled: Sequence[Troubled], told: set[tuple[str, str]]) -> Iterator[Concern]:
    for trouble, found in groupby(troubled, lambda each: each.trouble):
        known = (SCHEDULE_LATE,) if trouble == "late" else (SCHEDULE_FAILS,)
        left = [each for each in found if not told & {(kind, each.name) for kind in known}]
        for each in left[:FEW]:
            yield Concern(
                f"schedule {trouble} {each.name}",
                "schedule",
                each.name,
                f"/schedules/{quote(each.name, safe='')}",
                since=each.since,
                detail=_ONCE if trouble == "failing" and each.many == 1 else _said(each),
            )
        if len(left) > FEW:
            yield Concern(f"schedules {trouble}", "schedule", _MORE[trouble], "/schedules")


_MORE = {
    "late": "more schedules are late",
    "missed": "more schedules were missed within a day",
    "refused": "more schedules were refused within a day",
    "failing": "more schedules fail",
    "stopped": "more schedules are paused because they failed",
}


def _said(schedule: Troubled) -> str:
    return _TROUBLE[schedule.trouble].format(times=_many(schedule.many, "time", "times"))


def _many(count: int, one: str, many: str) -> str:
    return f"{number(count)} {one if count == 1 else many}"
