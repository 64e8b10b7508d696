"""Alert rules: syntax of limits, their findings, and that alerts do not flap."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import SettingsError
from rota.model import alert_decision, alert_rules
from rota.model.alert_decision import (
    DeadWorker,
    FailingSchedule,
    Finding,
    FleetSnapshot,
    LateSchedule,
    LiveWorker,
    OpenAlert,
    QuarantinedJobs,
    QueueHead,
    RefusedOutcomes,
    ServerLoad,
    decide,
    unreplaced_workers,
    update_history,
)
from rota.model.alert_rules import OFF, RULES, AlertRules
from rota.model.settings import Settings

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
USUAL = AlertRules.parse("")


# Limits


@pytest.mark.parametrize(
    ("text", "kind", "queue", "limit"),
    [
        ("", alert_rules.QUEUE_OLD, None, 300),
        ("queue-age=10m", alert_rules.QUEUE_OLD, None, 600),
        ("queue-age=90", alert_rules.QUEUE_OLD, "any", 90),
        ("queue-age=10m; images: queue-age=30s", alert_rules.QUEUE_OLD, "images", 30),
        ("queue-age=10m; images: queue-age=30s", alert_rules.QUEUE_OLD, "others", 600),
        ("images: queue-age=off", alert_rules.QUEUE_OLD, "images", OFF),
        ("images: off", alert_rules.QUARANTINE, "images", OFF),
        ("images: off", alert_rules.QUARANTINE, None, 1),
        ("off", alert_rules.SNAPSHOT_OLD, None, OFF),
        ("off worker-dead=1h", alert_rules.WORKER_DEAD, None, 3600),
        ("notify=80%", alert_rules.NOTIFY_FULL, None, 0.8),
        ("leader-flaps=9", alert_rules.FLAPPING, None, 9),
        ("lock-held=off", alert_rules.HELD_TOO_LONG, None, OFF),
        ("lock-held=on", alert_rules.HELD_TOO_LONG, None, 0),
    ],
)
def test_a_limit_is_said_for_all_or_for_a_queue(
    text: str, kind: str, queue: str | None, limit: float
) -> None:
    assert AlertRules.parse(text).limit(kind, queue) == limit


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("queue-age", "is not a rule"),
        ("queues=5m", "is not a rule"),
        ("queue-age=soon", "sets no limit; write it like 5m, or off"),
        ("queue-age=0", "sets no limit"),
        ("quarantine=1m", "sets no limit; write it like 3"),
        ("notify=0.5", "write it like 50%"),
        ("lock-held=5m", "write it like on, or off"),
        ("images: snapshot=1h", "does not belong to a queue"),
        ("images:", "queue 'images' has no rule"),
        ("queue-age=1m; queue-age=2m", "a second part about everything"),
        ("a: off; a: off", "queue 'a' has two parts"),
        ("*: off", "cannot be a queue's name"),
    ],
)
def test_what_cannot_be_understood_is_refused_where_the_app_is_made(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=f"alerts: .*{reason}"):
        Settings(alerts=text)


@pytest.mark.parametrize(
    ("url", "hosts", "reason"),
    [
        ("https://hooks.example.com/x", "", "webhooks are off: set ROTA_WEBHOOK_HOSTS"),
        ("https://evil.example.com/x", "hooks.example.com", "is not one of ROTA_WEBHOOK_HOSTS"),
        ("http://hooks.example.com/x", "hooks.example.com", "is not one of"),
        ("https://hooks.example.com/ ftp://hooks.example.com/", "hooks.example.com", "is like"),
        (
            "https://me:secret@hooks.example.com/",
            "hooks.example.com",
            "not contain a name and password",
        ),
        ("https://169.254.169.254/latest", "hooks.example.com", "is not one of"),
        ("https://hooks.example.com:22/", "hooks.example.com", "is not one of"),
    ],
)
def test_an_address_that_is_not_allowed_is_refused_where_the_app_is_made(
    url: str, hosts: str, reason: str
) -> None:
    with pytest.raises(SettingsError, match=f"alert_webhook: .*{reason}") as caught:
        Settings(alert_webhook=url, webhook_hosts=hosts)
    assert "secret" not in str(caught.value).replace("not contain a name and password", "")


def test_an_address_may_be_a_secret_and_is_not_shown() -> None:
    settings = Settings(
        alert_webhook="https://hooks.example.com/T0/B0/hush", webhook_hosts="hooks.example.com"
    )
    assert "hush" not in repr(settings)


def test_every_rule_has_a_word_and_can_be_switched_off() -> None:
    silent = AlertRules.parse("off")
    assert all(
        silent.limit(rule.kind) == OFF and not silent.is_enabled(rule.kind)
        for rule in RULES.values()
    )
    assert all(USUAL.is_enabled(rule.kind) for rule in RULES.values())


# Observations

HEAD = QueueHead("images", 0, 7, 7, "resize", 0.0, 1, 1, 0, 10)
WELL = ServerLoad(None, None, None, None, 0.0)


def found(seen: FleetSnapshot, text: str = "") -> list[tuple[str, str, bool]]:
    told = alert_decision.evaluate_rules(
        AlertRules.parse(text), seen, update_history({}, seen.heads, seen.now)
    )
    return [(each.kind, each.subject, each.exceeds_limit) for each in told]


@pytest.mark.parametrize(
    ("seen", "kind", "subject", "over"),
    [
        (
            FleetSnapshot(NOW, heads=[replace(HEAD, age=300.0)]),
            alert_rules.QUEUE_OLD,
            "images",
            True,
        ),
        (
            FleetSnapshot(NOW, heads=[replace(HEAD, age=299.0)]),
            alert_rules.QUEUE_OLD,
            "images",
            False,
        ),
        (
            FleetSnapshot(NOW, late=[LateSchedule("s", "t", 60.0, True, None)]),
            alert_rules.SCHEDULE_LATE,
            "s",
            True,
        ),
        (
            FleetSnapshot(NOW, late=[LateSchedule("s", "t", 59.0, True, None)]),
            alert_rules.SCHEDULE_LATE,
            "s",
            False,
        ),
        (
            FleetSnapshot(NOW, failing=[FailingSchedule("s", 3, False, 9)]),
            alert_rules.SCHEDULE_FAILS,
            "s",
            True,
        ),
        (
            FleetSnapshot(NOW, failing=[FailingSchedule("s", 1, True, 9)]),
            alert_rules.SCHEDULE_FAILS,
            "s",
            True,
        ),
        (
            FleetSnapshot(NOW, failing=[FailingSchedule("s", 2, False, 9)]),
            alert_rules.SCHEDULE_FAILS,
            "s",
            False,
        ),
        (
            FleetSnapshot(NOW, quarantined=[QuarantinedJobs("q", 1, 1, "t")]),
            alert_rules.QUARANTINE,
            "q",
            True,
        ),
        (
            FleetSnapshot(NOW, refused=[RefusedOutcomes("web-1", 10)]),
            alert_rules.REFUSED,
            "web-1",
            True,
        ),
        (
            FleetSnapshot(NOW, refused=[RefusedOutcomes("web-1", 9)]),
            alert_rules.REFUSED,
            "web-1",
            False,
        ),
        (
            FleetSnapshot(NOW, server=[replace(WELL, snapshot_age=1800.0)]),
            alert_rules.SNAPSHOT_OLD,
            "database",
            True,
        ),
        (
            FleetSnapshot(NOW, server=[replace(WELL, notify_usage=0.5)]),
            alert_rules.NOTIFY_FULL,
            "database",
            True,
        ),
        (
            FleetSnapshot(NOW, server=[replace(WELL, notify_usage=0.3)]),
            alert_rules.NOTIFY_FULL,
            "database",
            False,
        ),
    ],
)
def test_what_is_over_its_limit_is_told_and_what_is_near_it_kept(
    seen: FleetSnapshot, kind: str, subject: str, over: bool
) -> None:
    assert found(seen) == [(kind, subject, over)]
    assert found(seen, "off") == []


@pytest.mark.parametrize(
    "seen",
    [
        FleetSnapshot(NOW),
        FleetSnapshot(NOW, heads=[replace(HEAD, age=149.0)]),
        FleetSnapshot(NOW, heads=[replace(HEAD, age=None)]),
        FleetSnapshot(NOW, late=[LateSchedule("s", "t", 29.0, True, None)]),
        FleetSnapshot(NOW, failing=[FailingSchedule("s", 0, True, None)]),
        FleetSnapshot(NOW, refused=[RefusedOutcomes("web-1", 4)]),
        FleetSnapshot(NOW, server=[WELL]),
        FleetSnapshot(NOW, server=[replace(WELL, snapshot_age=899.0, notify_usage=0.24)]),
    ],
)
def test_what_is_far_from_it_is_not(seen: FleetSnapshot) -> None:
    assert found(seen) == []


def test_a_queue_is_as_old_as_the_oldest_of_its_lanes() -> None:
    heads = [
        replace(HEAD, priority=lane, age=age) for lane, age in ((0, 10.0), (5, 400.0), (9, 20.0))
    ]
    assert found(FleetSnapshot(NOW, heads=heads)) == [(alert_rules.QUEUE_OLD, "images", True)]


def test_a_job_that_stays_first_is_as_old_as_the_first_look_at_it() -> None:
    head = replace(HEAD, age=None)
    memory = update_history({}, [head], NOW)
    later = NOW + timedelta(seconds=301)
    assert update_history(memory, [head], later) == memory
    assert (
        len(alert_decision.evaluate_rules(USUAL, FleetSnapshot(later, heads=[head]), memory)) == 1
    )
    moved_on = update_history(memory, [replace(head, seq=8)], later)
    assert alert_decision.evaluate_rules(USUAL, FleetSnapshot(later, heads=[head]), moved_on) == []
    put_back = update_history(memory, [head], NOW - timedelta(hours=1))
    assert put_back != memory, "what is remembered from the future is forgotten"


# Workers


def died(worker: int, ago: float, host: str = "web-1", *queues: str) -> DeadWorker:
    return DeadWorker(worker, host, 1, list(queues or ("default",)), NOW - timedelta(seconds=ago))


def came(ago: float, *queues: str) -> LiveWorker:
    return LiveWorker(list(queues or ("default",)), NOW - timedelta(seconds=ago))


@pytest.mark.parametrize(
    ("dead", "alive", "missing"),
    [
        ([died(1, 100)], [], [1]),
        ([died(1, 100)], [came(200)], [1]),
        ([died(1, 100)], [came(50)], []),
        ([died(1, 100), died(2, 90)], [came(50)], [1]),
        ([died(1, 100), died(2, 40)], [came(50)], [2]),
        ([died(1, 100), died(2, 90)], [came(95), came(50)], []),
        ([died(1, 100, "web-1", "a", "b")], [came(50, "b", "a")], []),
        ([died(1, 100, "web-1", "a", "b")], [came(50, "a")], [1]),
    ],
)
def test_each_that_died_has_one_in_its_place_or_is_missing(
    dead: list[DeadWorker], alive: list[LiveWorker], missing: list[int]
) -> None:
    assert [each.worker for each in unreplaced_workers(dead, alive)] == missing


def test_who_died_is_told_by_host_for_a_while_and_for_as_long_as_nobody_takes_its_place() -> None:
    long_ago = died(1, 3600, "web-1")
    assert found(FleetSnapshot(NOW, dead=[died(2, 60)], alive=[came(30)])) == [
        (alert_rules.WORKER_DEAD, "web-1", True)
    ]
    assert found(FleetSnapshot(NOW, dead=[long_ago], alive=[came(30)])) == []
    assert found(FleetSnapshot(NOW, dead=[long_ago])) == [(alert_rules.WORKER_DEAD, "web-1", True)]
    several = FleetSnapshot(NOW, dead=[died(3, 9), died(4, 8, "web-2"), died(5, 7)])
    assert found(several) == [
        (alert_rules.WORKER_DEAD, "web-1", True),
        (alert_rules.WORKER_DEAD, "web-2", True),
    ]
    [first, _] = alert_decision.evaluate_rules(USUAL, several, {})
    assert "worker 5 on web-1 (process 1) died" in first.message
    assert "and 1 other there" in first.message


# Hysteresis

CALM = 30.0
AGES = st.lists(st.sampled_from([0, 100, 149, 151, 299, 301, 900]), min_size=1, max_size=80)


@given(ages=AGES, step=st.sampled_from([5, 10, 12, 40]))
def test_an_alert_opens_at_once_and_closes_after_a_calm(ages: list[int], step: int) -> None:
    """For any course of a queue's age: the alert is raised as soon as the age exceeds its limit, kept until
    it is well below, and cleared only after `CALM` calm seconds. So it is never raised more often than
    that.
    """
    known: OpenAlert | None = None
    calm_since: int | None = None
    opened_at: list[int] = []
    for number, age in enumerate(ages):
        at = number * step
        now = NOW + timedelta(seconds=at)
        seen = FleetSnapshot(now, heads=[replace(HEAD, age=float(age))])
        told = alert_decision.evaluate_rules(
            USUAL, seen, {HEAD.lane_key: (HEAD.seq, now.timestamp())}
        )
        decision = decide(USUAL, told, [known] if known else [], now, CALM)

        if age >= 150:
            calm_since = None
        elif calm_since is None:
            calm_since = at
        if known is None:
            assert bool(decision.raised) == (age >= 300)
        else:
            assert not decision.raised
            assert bool(decision.closed) == (calm_since is not None and at - calm_since >= CALM)
        for each in decision.raised:
            opened_at.append(at)
            known = OpenAlert(1, each.kind, each.subject, each.message, None)
        if known and decision.updated:
            known = replace(known, message=decision.updated[0][1], cleared_at=None)
        if known and decision.cleared:
            known = replace(known, cleared_at=now)
        if decision.closed:
            known = None
    assert all(later - first > CALM for first, later in pairwise(opened_at))


@given(
    told=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4),
    opened=st.sets(st.sampled_from("abcd")),
)
def test_each_that_is_open_is_decided_once(told: list[tuple[str, bool]], opened: set[str]) -> None:
    told_of = [
        Finding(alert_rules.QUEUE_OLD, name, "so", over) for name, over in dict(told).items()
    ]
    known = [
        OpenAlert(ord(name), alert_rules.QUEUE_OLD, name, "so", None) for name in sorted(opened)
    ]

    decision = decide(USUAL, told_of, known, NOW, CALM)

    assert {each.subject for each in decision.raised} == {
        each.subject for each in told_of if each.exceeds_limit and each.subject not in opened
    }
    assert set(decision.cleared) == {
        ord(name) for name in opened - {each.subject for each in told_of}
    }
    assert decision.updated == []
    assert decision.closed == []


def test_what_comes_back_within_the_calm_is_the_same_alert() -> None:
    calm = OpenAlert(1, alert_rules.QUEUE_OLD, "images", "so", NOW - timedelta(seconds=29))
    again = Finding(alert_rules.QUEUE_OLD, "images", "so")

    assert decide(USUAL, [again], [calm], NOW, CALM).updated == [(1, "so")]
    assert decide(USUAL, [], [calm], NOW, CALM).closed == []
    assert decide(USUAL, [], [calm], NOW + timedelta(seconds=1), CALM).closed == [1]
