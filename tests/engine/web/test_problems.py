"""Items that need attention: the worst first, none reported twice, and only the first of many."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rota.model.alert_rules import QUARANTINE, QUEUE_OLD, SCHEDULE_FAILS, SCHEDULE_LATE
from rota.store.metrics import FleetTotals
from rota.store.queues import PauseRow, UnservedTaskRow
from rota.store.read.coordination import AlertRow
from rota.store.read.metrics import ProblemScheduleRow
from rota.web.dashboard.problems import MAX_LINES, Problem, list_problems

THEN = datetime(2026, 11, 16, 12, tzinfo=UTC)


def fleet(**changed: Any) -> FleetTotals:
    calm: dict[str, Any] = {
        **dict.fromkeys(("held", "sleeping", "quarantined", "running", "concurrency"), 0),
        **{
            "workers": {"active": 1},
            "leaders": {},
            "schedule_late_seconds": None,
            "notify_queue_usage": 0.0,
            "alerts": {},
        },
    }
    return FleetTotals(**(calm | changed))


def alert(id: int, kind: str, subject: str) -> AlertRow:
    return AlertRow(id, kind, subject, "look at it", THEN, None, "host", 1, None, None, None)


def kinds_and_texts(found: list[Problem]) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in found]


def test_problems_healthy_fleet_lists_none() -> None:
    assert list_problems(fleet(), [], [], []) == []


def test_problems_each_has_its_text_detail_and_link() -> None:
    found = list_problems(
        fleet(quarantined=1, workers={"active": 1, "silent": 2}, alerts={"leader flaps": 1}),
        [alert(7, "leader flaps", "mail")],
        [
            UnservedTaskRow("mail", "send", 3, 11, THEN, 0),
            UnservedTaskRow("mail", "old", 1, 12, THEN, 2),
        ],
        [ProblemScheduleRow("a b", "missed", THEN, 2), ProblemScheduleRow("c", "failing", THEN, 1)],
        [PauseRow("mail/x", THEN, "ann", "a planted s3cret")],
    )

    assert [(each.kind, each.text, each.path, each.query) for each in found] == [
        ("leader flaps", "mail", "/alerts", {}),
        ("quarantine", "1 job is in quarantine", "/runs", {"state": "quarantined"}),
        ("no worker", "send in queue mail", "/queues", {}),
        ("no worker", "old in queue mail", "/queues", {}),
        ("workers", "2 workers are silent", "/workers", {}),
        ("queue", "mail/x", "/queues/mail%2Fx", {}),
        ("schedule", "a b", "/schedules/a%20b", {}),
        ("schedule", "c", "/schedules/c", {}),
    ]
    details = [each.detail for each in found]
    assert details[2:4] == [
        "cannot run: no worker serves the queue",
        "cannot run: none of the 2 workers that serve the queue knows the task",
    ]
    # The reason of the pause and the operator are not shown to every role.
    assert details[5] == "is paused: its jobs are not claimed"
    assert details[6:] == ["was missed 2 times within a day", "failed the last time"]


def test_problems_with_open_alert_are_not_repeated() -> None:
    alerts = [
        alert(1, QUARANTINE, "default"),
        alert(2, SCHEDULE_LATE, "nightly"),
        alert(3, SCHEDULE_FAILS, "hourly"),
        alert(4, QUEUE_OLD, "mail"),
    ]
    found = list_problems(
        fleet(quarantined=5, alerts={QUARANTINE: 1, SCHEDULE_LATE: 1, SCHEDULE_FAILS: 1}),
        alerts,
        [
            UnservedTaskRow("mail", "send", 3, 11, THEN, 0),
            UnservedTaskRow("gpu", "train", 1, 12, THEN, 0),
        ],
        [
            ProblemScheduleRow("nightly", "late", THEN, 1),
            ProblemScheduleRow("hourly", "late", THEN, 1),
            ProblemScheduleRow("hourly", "stopped", THEN, 9),
        ],
    )

    assert kinds_and_texts(found) == [
        (QUARANTINE, "default"),
        (SCHEDULE_LATE, "nightly"),
        (SCHEDULE_FAILS, "hourly"),
        (QUEUE_OLD, "mail"),
        ("no worker", "train in queue gpu"),
        ("schedule", "hourly"),
    ]
    assert found[-1].detail == "is late"


def test_problems_above_maximum_are_counted_in_one_line() -> None:
    found = list_problems(
        fleet(alerts={"queue too old": 1234}),
        [alert(number, "queue too old", f"q{number}") for number in range(100)],
        [UnservedTaskRow("q", f"t{number}", 1, 1, THEN, 0) for number in range(MAX_LINES + 2)],
        [ProblemScheduleRow(f"s{number}", "late", THEN, 1) for number in range(MAX_LINES + 1)],
    )

    assert len(found) == 3 * MAX_LINES + 3
    assert kinds_and_texts(found)[MAX_LINES] == ("alerts", "1,230 more alerts are open")
    assert kinds_and_texts(found)[2 * MAX_LINES + 1] == (
        "no worker",
        "2 more tasks are not served by any worker",
    )
    assert kinds_and_texts(found)[-1] == ("schedule", "more schedules are late")
    assert len({each.key for each in found}) == len(found)
