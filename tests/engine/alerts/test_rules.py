"""Alert rules: syntax of limits, their findings, and that alerts do not flap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

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
def test_alert_rules_parse_returns_limit_for_all_or_one_queue(
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
def test_settings_invalid_alert_rules_raise_settings_error(text: str, reason: str) -> None:
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
def test_settings_disallowed_webhook_url_raises_settings_error(
    url: str, hosts: str, reason: str
) -> None:
    with pytest.raises(SettingsError, match=f"alert_webhook: .*{reason}") as caught:
        Settings(alert_webhook=url, webhook_hosts=hosts)
    assert "secret" not in str(caught.value).replace("not contain a name and password", "")


def test_settings_repr_hides_the_webhook_url() -> None:
    settings = Settings(
        alert_webhook="https://hooks.example.com/T0/B0/hush", webhook_hosts="hooks.example.com"
    )
    assert "hush" not in repr(settings)


def test_alert_rules_off_disables_every_rule() -> None:
    silent = AlertRules.parse("off")
    assert all(
        silent.limit(rule.kind) == OFF and not silent.is_enabled(rule.kind)
        for rule in RULES.values()
    )
    assert all(USUAL.is_enabled(rule.kind) for rule in RULES.values())


# Observations

HEAD = QueueHead("images", 0, 7, 7, "resize", 0.0, 1, 1, 0, 10)
WELL = ServerLoad(None, None, None, None, 0.0)


def findings(seen: FleetSnapshot, text: str = "") -> list[tuple[str, str, bool]]:
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
def test_evaluate_rules_marks_findings_that_exceed_the_limit(
    seen: FleetSnapshot, kind: str, subject: str, over: bool
) -> None:
    assert findings(seen) == [(kind, subject, over)]
    assert findings(seen, "off") == []


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
def test_evaluate_rules_values_far_below_limit_are_no_findings(seen: FleetSnapshot) -> None:
    assert findings(seen) == []


def test_evaluate_rules_queue_age_is_that_of_its_oldest_lane() -> None:
    heads = [
        replace(HEAD, priority=lane, age=age) for lane, age in ((0, 10.0), (5, 400.0), (9, 20.0))
    ]
    assert findings(FleetSnapshot(NOW, heads=heads)) == [(alert_rules.QUEUE_OLD, "images", True)]


def test_evaluate_rules_unmoved_head_ages_from_first_observation() -> None:
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


def dead_worker(worker: int, ago: float, host: str = "web-1", *queues: str) -> DeadWorker:
    return DeadWorker(worker, host, 1, list(queues or ("default",)), NOW - timedelta(seconds=ago))


def live_worker(ago: float, *queues: str) -> LiveWorker:
    return LiveWorker(list(queues or ("default",)), NOW - timedelta(seconds=ago))


@pytest.mark.parametrize(
    ("dead", "alive", "missing"),
    [
        ([dead_worker(1, 100)], [], [1]),
        ([dead_worker(1, 100)], [live_worker(200)], [1]),
        ([dead_worker(1, 100)], [live_worker(50)], []),
        ([dead_worker(1, 100), dead_worker(2, 90)], [live_worker(50)], [1]),
        ([dead_worker(1, 100), dead_worker(2, 40)], [live_worker(50)], [2]),
        ([dead_worker(1, 100), dead_worker(2, 90)], [live_worker(95), live_worker(50)], []),
        ([dead_worker(1, 100, "web-1", "a", "b")], [live_worker(50, "b", "a")], []),
        ([dead_worker(1, 100, "web-1", "a", "b")], [live_worker(50, "a")], [1]),
    ],
)
def test_unreplaced_workers_returns_deaths_without_replacement(
    dead: list[DeadWorker], alive: list[LiveWorker], missing: list[int]
) -> None:
    assert [each.worker for each in unreplaced_workers(dead, alive)] == missing


def test_evaluate_rules_recent_or_unreplaced_deaths_are_listed_by_host() -> None:
    long_ago = dead_worker(1, 3600, "web-1")
    assert findings(FleetSnapshot(NOW, dead=[dead_worker(2, 60)], alive=[live_worker(30)])) == [
        (alert_rules.WORKER_DEAD, "web-1", True)
    ]
    assert findings(FleetSnapshot(NOW, dead=[long_ago], alive=[live_worker(30)])) == []
    assert findings(FleetSnapshot(NOW, dead=[long_ago])) == [
        (alert_rules.WORKER_DEAD, "web-1", True)
    ]
    several = FleetSnapshot(
        NOW, dead=[dead_worker(3, 9), dead_worker(4, 8, "web-2"), dead_worker(5, 7)]
    )
    assert findings(several) == [
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
def test_decide_alert_opens_at_once_and_closes_after_calm(ages: list[int], step: int) -> None:
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
def test_decide_each_open_alert_gets_one_decision(
    told: list[tuple[str, bool]], opened: set[str]
) -> None:
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


def test_decide_finding_within_calm_keeps_the_same_alert() -> None:
    calm = OpenAlert(1, alert_rules.QUEUE_OLD, "images", "so", NOW - timedelta(seconds=29))
    again = Finding(alert_rules.QUEUE_OLD, "images", "so")

    assert decide(USUAL, [again], [calm], NOW, CALM).updated == [(1, "so")]
    assert decide(USUAL, [], [calm], NOW, CALM).closed == []
    assert decide(USUAL, [], [calm], NOW + timedelta(seconds=1), CALM).closed == [1]
