"""What needs attention: what is worst first, nothing told twice, of what there is much only the first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rota.model.rules import QUARANTINE, QUEUE_OLD, SCHEDULE_FAILS, SCHEDULE_LATE
from rota.store.history import Troubled, Unserved
from rota.store.meters import Fleet
from rota.store.queues import Pause
from rota.store.standing import AlertLine
from rota.web.dashboard.attention import FEW, Concern, concerns

THEN = datetime(2026, 11, 16, 12, tzinfo=UTC)


def fleet(**changed: Any) -> Fleet:
    calm: dict[str, Any] = {
        **dict.fromkeys(("held", "asleep", "quarantined", "running", "concurrency"), 0),
        **{"workers": {"active": 1}, "leaders": {}, "overdue": None, "notify": 0.0, "alerts": {}},
    }
    return Fleet(**(calm | changed))


def alert(id: int, kind: str, subject: str) -> AlertLine:
    return AlertLine(id, kind, subject, "look at it", THEN, None, "host", 1, None, None, None)


def said(found: list[Concern]) -> list[tuple[str, str]]:
    return [(each.kind, each.words) for each in found]


def test_where_all_is_well_nothing_is_said() -> None:
    assert concerns(fleet(), [], [], []) == []


def test_each_thing_is_said_with_where_to_see_to_it() -> None:
    found = concerns(
        fleet(quarantined=1, workers={"active": 1, "silent": 2}, alerts={"leader flaps": 1}),
        [alert(7, "leader flaps", "mail")],
        [Unserved("mail", "send", 3, 11, THEN, 0), Unserved("mail", "old", 1, 12, THEN, 2)],
        [Troubled("a b", "missed", THEN, 2), Troubled("c", "failing", THEN, 1)],
        [Pause("mail/x", THEN, "ann", "a planted s3cret")],
    )

    assert [(each.kind, each.words, each.to, each.query) for each in found] == [
        ("leader flaps", "mail", "/alerts", {}),
        ("quarantine", "1 job is in quarantine", "/runs", {"state": "quarantined"}),
        ("no worker", "send in queue mail", "/queues", {}),
        ("no worker", "old in queue mail", "/queues", {}),
        ("workers", "2 workers have not been heard of lately", "/workers", {}),
        ("queue", "mail/x", "/queues/mail%2Fx", {}),
        ("schedule", "a b", "/schedules/a%20b", {}),
        ("schedule", "c", "/schedules/c", {}),
    ]
    details = [each.detail for each in found]
    assert details[2:4] == [
        "waits, and no worker serves the queue",
        "is known to no worker that serves the queue",
    ]
    # Why, and who it was, is not for everybody.
    assert details[5] == "is paused: nobody takes its jobs"
    assert details[6:] == ["was missed 2 times within a day", "failed the last time"]


def test_what_an_alert_tells_of_is_not_told_again() -> None:
    alerts = [
        alert(1, QUARANTINE, "default"),
        alert(2, SCHEDULE_LATE, "nightly"),
        alert(3, SCHEDULE_FAILS, "hourly"),
        alert(4, QUEUE_OLD, "mail"),
    ]
    found = concerns(
        fleet(quarantined=5, alerts={QUARANTINE: 1, SCHEDULE_LATE: 1, SCHEDULE_FAILS: 1}),
        alerts,
        [Unserved("mail", "send", 3, 11, THEN, 0), Unserved("gpu", "train", 1, 12, THEN, 0)],
        [
            Troubled("nightly", "late", THEN, 1),
            Troubled("hourly", "late", THEN, 1),
            Troubled("hourly", "stopped", THEN, 9),
        ],
    )

    assert said(found) == [
        (QUARANTINE, "default"),
        (SCHEDULE_LATE, "nightly"),
        (SCHEDULE_FAILS, "hourly"),
        (QUEUE_OLD, "mail"),
        ("no worker", "train in queue gpu"),
        ("schedule", "hourly"),
    ]
    assert found[-1].detail == "is late"


def test_of_much_only_the_first_is_told_and_that_there_is_more() -> None:
    found = concerns(
        fleet(alerts={"queue too old": 1234}),
        [alert(number, "queue too old", f"q{number}") for number in range(100)],
        [Unserved("q", f"t{number}", 1, 1, THEN, 0) for number in range(FEW + 2)],
        [Troubled(f"s{number}", "late", THEN, 1) for number in range(FEW + 1)],
    )

    assert len(found) == 3 * FEW + 3
    assert said(found)[FEW] == ("alerts", "1,230 more alerts are open")
    assert said(found)[2 * FEW + 1] == ("no worker", "2 more tasks are not taken by any worker")
    assert said(found)[-1] == ("schedule", "more schedules are late")
    assert len({each.key for each in found}) == len(found)
