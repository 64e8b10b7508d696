"""Evaluation of the alert rules for the fleet: every few seconds, by one worker for all.

Each worker checks whether a round is due; one of them gets it. It reads the state of the fleet,
evaluates the rules, and writes the changes. If a later round has begun meanwhile, its observations are
outdated and are not written. So an alert is opened once and closed once, whichever worker evaluates, and
if a worker dies during a round another takes the next.

The evaluator logs and publishes the changes that it has written; `AlertDelivery` sends them to webhooks.
If one query fails, the remaining ones still run, and alerts that depend on the failed query are neither
raised nor cleared.

Each worker sends one short statement about every EVALUATE_SECONDS, and the fleet as a whole two more.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from rota.engine.telemetry.event_bus import EventBus
from rota.loop import Loop, with_jitter
from rota.model import alert_decision, alert_rules
from rota.model.alert_decision import FleetSnapshot, OpenAlert
from rota.model.alert_rules import AlertRules
from rota.model.events import AlertCleared, AlertRaised
from rota.store import alerts, pg_errors, ticks
from rota.store.alerts import ChangedAlert, ClosedAlert
from rota.store.database import Database
from rota.store.query import Query, Row

log = logging.getLogger("rota")

EVALUATE_SECONDS = 10.0
"""Seconds between rounds of the fleet. Each worker checks slightly less often."""

FIRST_EVALUATION_SECONDS = 3.0
"""Seconds from a worker's start to its first check, before jitter."""

EVALUATION_JITTER = 1.0, 1.4
"""Range of the jitter: no worker checks earlier than EVALUATE_SECONDS after its last check."""

STALE_SECONDS = 60.0
"""Seconds without a round after which a list of alerts runs one itself, because no worker does."""

Process = tuple[str, int]

Queries = dict[str, tuple[tuple[str, ...], Query[Any]]]

_HISTORY_DECODER = msgspec.json.Decoder(dict[str, tuple[int, float]])


class RefusedCounter:
    """Refused completions of this process, over all registrations of its worker."""

    def __init__(self) -> None:
        self._jobs = 0

    def add(self, jobs: int) -> None:
        self._jobs += jobs

    async def write(self, database: Database, process: Process) -> None:
        if jobs := self._jobs:
            await database.run(alerts.record_refused(*process, jobs))
            self._jobs -= jobs


class Evaluation:
    """State of the fleet as one instance observes it, and the alerts that follow from it."""

    def __init__(self, database: Database, process: Process) -> None:
        self._database = database
        self._process = process
        self._rules = AlertRules.parse(database.settings.alerts)
        self._unknown_kinds: frozenset[str] = frozenset()

    async def evaluate(self, interval: float) -> tuple[list[ChangedAlert], bool]:
        """Run the next round if it is due.

        Return the changed alerts, and True if deliveries are pending.
        """
        [round_start] = await self._query_by_index(alerts.begin_round(interval))
        if round_start.round is None:
            return [], round_start.has_deliveries
        snapshot, open_alerts, closed = await self._observe(round_start.now)
        previous = _HISTORY_DECODER.decode(round_start.memory or b"{}")
        history: Mapping[str, tuple[int, float]] = previous
        if alert_rules.QUEUE_OLD not in self._unknown_kinds:
            history = alert_decision.update_history(previous, snapshot.heads, round_start.now)
        found = [
            each
            for each in alert_decision.evaluate_rules(self._rules, snapshot, history)
            if each.kind not in self._unknown_kinds
        ]
        open_alerts = [each for each in open_alerts if each.kind not in self._unknown_kinds]
        decision = alert_decision.decide(
            self._rules, found, open_alerts, round_start.now, alert_decision.CLOSE_AFTER_SECONDS
        )
        changed = [ChangedAlert(False, each.kind, each.subject, "") for each in closed]
        if decision or history != previous:
            query = alerts.write_round(round_start.round, decision, history, *self._process)
            changed += await self._query_by_index(query)
        return changed, round_start.has_deliveries or bool(changed)

    async def _query_by_index(self, query: Query[Row]) -> list[Row]:
        """Run a query with index scans forced.

        Most alerts are closed and not read here, so the planner's statistics would favour full scans.
        """
        [[_, rows]] = await self._database.pipeline([[ticks.set_short_timeouts(), query]])
        return rows

    async def _observe(
        self, now: datetime
    ) -> tuple[FleetSnapshot, list[OpenAlert], list[ClosedAlert]]:
        queries_by_name = self._queries()
        queries = [query for _, query in queries_by_name.values()]
        first_queries: list[Query[Any]] = [ticks.set_short_timeouts(), alerts.list_open()]
        try:
            rows, closed = await self._database.pipeline(
                [[*first_queries, *queries], [alerts.clear_resolved()]]
            )
        except Exception as error:
            if pg_errors.is_transient(error):
                raise
            rows, closed = await self._database.pipeline([first_queries, [alerts.clear_resolved()]])
            answers = await self._query_one_by_one(queries_by_name)
        else:
            self._unknown_kinds = frozenset()
            answers = dict(zip(queries_by_name, rows[2:], strict=True))
        return FleetSnapshot(now, **answers), rows[1], closed[0]

    async def _query_one_by_one(self, queries: Queries) -> dict[str, list[Any]]:
        answers: dict[str, list[Any]] = {}
        errors: dict[str, Exception] = {}
        for name, (kinds, query) in queries.items():
            try:
                answers[name] = await self._query_by_index(query)
            except Exception as error:
                if pg_errors.is_transient(error):
                    raise
                errors |= dict.fromkeys(kinds, error)
        for kind in sorted(errors.keys() - self._unknown_kinds):
            log.warning(
                "alert %r cannot be evaluated: %s; the other alerts are",
                kind,
                pg_errors.first_line(errors[kind]),
            )
        self._unknown_kinds = frozenset(errors)
        return answers

    def _queries(self) -> Queries:
        """Return the queries and the alerts each is for, without those of disabled alerts."""
        limit, within = self._rules.limit, alert_decision.REFUSED_WINDOW_SECONDS
        late_seconds, min_failures = (
            limit(alert_rules.SCHEDULE_LATE),
            limit(alert_rules.SCHEDULE_FAILS),
        )
        queries: dict[str, tuple[tuple[str, ...], Callable[[], Query[Any]]]] = {
            "heads": ((alert_rules.QUEUE_OLD,), alerts.queue_heads),
            "dead": ((alert_rules.WORKER_DEAD,), alerts.dead_workers),
            "alive": ((alert_rules.WORKER_DEAD,), alerts.live_workers),
            "late": (
                (alert_rules.SCHEDULE_LATE,),
                lambda: alerts.late_schedules(late_seconds * alert_decision.CLEAR_FRACTION),
            ),
            "failing": (
                (alert_rules.SCHEDULE_FAILS,),
                lambda: alerts.failing_schedules(int(min_failures)),
            ),
            "quarantined": ((alert_rules.QUARANTINE,), alerts.quarantined_jobs),
            "refused": ((alert_rules.REFUSED,), lambda: alerts.refused_outcomes(within)),
            "server": ((alert_rules.SNAPSHOT_OLD, alert_rules.NOTIFY_FULL), alerts.server_load),
        }
        return {
            name: (kinds, build())
            for name, (kinds, build) in queries.items()
            if any(self._rules.is_enabled(kind) for kind in kinds)
        }


class AlertEvaluator(Loop):
    name = "alert evaluator"
    max_error_delay_seconds = EVALUATE_SECONDS

    def __init__(
        self,
        database: Database,
        event_bus: EventBus,
        refused_counter: RefusedCounter,
        wake_delivery: Callable[[], None],
    ) -> None:
        super().__init__()
        self._database = database
        self._event_bus = event_bus
        self._refused_counter = refused_counter
        self._wake_delivery = wake_delivery
        self._process = (socket.gethostname(), os.getpid())
        self._evaluation = Evaluation(database, self._process)
        self._started = False

    async def tick(self) -> float | None:
        if not self._started:
            self._started = True
            return with_jitter(FIRST_EVALUATION_SECONDS, *EVALUATION_JITTER)
        await self._refused_counter.write(self._database, self._process)
        changed, due = await self._evaluation.evaluate(EVALUATE_SECONDS)
        for each in changed:
            self._publish(each)
        if due:
            self._wake_delivery()
        return with_jitter(EVALUATE_SECONDS, *EVALUATION_JITTER)

    def _publish(self, alert: ChangedAlert) -> None:
        if alert.raised:
            log.warning("alert: %s: %s", alert.kind, alert.message)
            self._event_bus.publish(AlertRaised(alert.kind, alert.subject, alert.message))
        else:
            log.info("alert cleared: %s: %s", alert.kind, alert.subject)
            self._event_bus.publish(AlertCleared(alert.kind, alert.subject))
