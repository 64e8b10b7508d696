"""Looks at the fleet for what somebody should know: every few seconds, one worker for all.

Each worker asks whether it is time for a round; of those who ask, one gets it. It looks, decides by the
rules, and writes down what has changed, unless a later round has begun: then what it saw is old. So an
alert is opened once and closed once, whoever looks; and whoever dies of it is followed by the next one.
What it has written it logs and announces; to tell it outside is the courier's. Where one question cannot be
answered, the others are: of what it cannot see, nothing is raised and nothing is over.

It costs each worker one short statement every `EVERY` seconds or so, and all of them together two more.
"""

from __future__ import annotations

import logging
import os
import random
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from rota.engine.announce import Announcer
from rota.loop import Loop
from rota.model import findings, judging, rules
from rota.model.events import AlertCleared, AlertRaised
from rota.model.judging import Open
from rota.model.rules import Rules
from rota.model.sights import Seen
from rota.store import alerts, failures, ticks
from rota.store.alerts import Changed, Closed
from rota.store.database import Database
from rota.store.query import Query, Row

log = logging.getLogger("rota")

EVERY = 10.0
"""Seconds from one round to the next, over the fleet; a worker asks a little less often."""

FIRST_LOOK = 3.0
"""Seconds after a worker's start, about."""

FORGOTTEN = 60.0
"""Seconds without a round after which somebody who asks by hand makes one: no worker does."""

Who = tuple[str, int]

Questions = dict[str, tuple[tuple[str, ...], Query[Any]]]

_MEMORY = msgspec.json.Decoder(dict[str, tuple[int, float]])


class Refusals:
    """Completions of this process that were refused, over all lives of its worker."""

    def __init__(self) -> None:
        self._jobs = 0

    def add(self, jobs: int) -> None:
        self._jobs += jobs

    async def write(self, database: Database, who: Who) -> None:
        if jobs := self._jobs:
            await database.run(alerts.refuse(*who, jobs))
            self._jobs -= jobs


class Round:
    """What one instance sees of the fleet, and what it makes of it."""

    def __init__(self, database: Database, who: Who) -> None:
        self._database = database
        self._who = who
        self._rules = Rules.parse(database.settings.alerts)
        self._blind: frozenset[str] = frozenset()

    async def make(self, every: float) -> tuple[list[Changed], bool]:
        """Make the next round, if it is time. Answers what has changed, and whether somebody outside is to
        be told of something."""
        [turn] = await self._by_index(alerts.turn(every))
        if turn.round is None:
            return [], turn.due
        seen, known, settled = await self._look(turn.now)
        before = _MEMORY.decode(turn.memory or b"{}")
        memory: Mapping[str, tuple[int, float]] = before
        if rules.QUEUE_OLD not in self._blind:
            memory = findings.remember(before, seen.heads, turn.now)
        found = [
            each
            for each in findings.findings(self._rules, seen, memory)
            if each.kind not in self._blind
        ]
        known = [each for each in known if each.kind not in self._blind]
        decision = judging.decide(self._rules, found, known, turn.now, judging.CALM)
        changed = [Changed(False, each.kind, each.subject, "") for each in settled]
        if decision or memory != before:
            query = alerts.judge(turn.round, decision, memory, *self._who)
            changed += await self._by_index(query)
        return changed, turn.due or bool(changed)

    async def _by_index(self, query: Query[Row]) -> list[Row]:
        """Whatever statistics say: most alerts are over, and are read by nobody here."""
        [[_, rows]] = await self._database.exchange([[ticks.hurry(), query]])
        return rows

    async def _look(self, now: datetime) -> tuple[Seen, list[Open], list[Closed]]:
        asked = self._questions()
        queries = [query for _, query in asked.values()]
        looking: list[Query[Any]] = [ticks.hurry(), alerts.opened()]
        try:
            looked, settled = await self._database.exchange(
                [[*looking, *queries], [alerts.settle()]]
            )
        except Exception as error:
            if failures.is_passing(error):
                raise
            looked, settled = await self._database.exchange([looking, [alerts.settle()]])
            answers = await self._ask_one_by_one(asked)
        else:
            self._blind = frozenset()
            answers = dict(zip(asked, looked[2:], strict=True))
        return Seen(now, **answers), looked[1], settled[0]

    async def _ask_one_by_one(self, asked: Questions) -> dict[str, list[Any]]:
        answers: dict[str, list[Any]] = {}
        blind: dict[str, Exception] = {}
        for name, (kinds, query) in asked.items():
            try:
                answers[name] = await self._by_index(query)
            except Exception as error:
                if failures.is_passing(error):
                    raise
                blind |= dict.fromkeys(kinds, error)
        for kind in sorted(blind.keys() - self._blind):
            log.warning(
                "alert %r cannot be looked for: %s; others are",
                kind,
                failures.first_line(blind[kind]),
            )
        self._blind = frozenset(blind)
        return answers

    def _questions(self) -> Questions:
        """What there is to ask, and for which alerts; of what nobody wants to be told, nothing is."""
        limit, within = self._rules.limit, findings.REFUSED_WITHIN
        late, failures = limit(rules.SCHEDULE_LATE), limit(rules.SCHEDULE_FAILS)
        questions: dict[str, tuple[tuple[str, ...], Callable[[], Query[Any]]]] = {
            "heads": ((rules.QUEUE_OLD,), alerts.heads),
            "dead": ((rules.WORKER_DEAD,), alerts.dead),
            "alive": ((rules.WORKER_DEAD,), alerts.alive),
            "late": ((rules.SCHEDULE_LATE,), lambda: alerts.late(late * findings.BACK)),
            "failing": ((rules.SCHEDULE_FAILS,), lambda: alerts.failing(int(failures))),
            "quarantined": ((rules.QUARANTINE,), alerts.quarantined),
            "refused": ((rules.REFUSED,), lambda: alerts.refused(within)),
            "server": ((rules.SNAPSHOT_OLD, rules.NOTIFY_FULL), alerts.server),
        }
        return {
            name: (kinds, ask())
            for name, (kinds, ask) in questions.items()
            if any(self._rules.tells(kind) for kind in kinds)
        }


class Watchman(Loop):
    longest_rest_after_error = EVERY

    def __init__(
        self,
        database: Database,
        announcer: Announcer,
        refusals: Refusals,
        tell: Callable[[], None],
    ) -> None:
        super().__init__()
        self._database = database
        self._announcer = announcer
        self._refusals = refusals
        self._tell = tell
        self._who = (socket.gethostname(), os.getpid())
        self._round = Round(database, self._who)
        self._began = False

    async def tick(self) -> float | None:
        if not self._began:
            self._began = True
            return _about(FIRST_LOOK)
        await self._refusals.write(self._database, self._who)
        changed, due = await self._round.make(EVERY)
        for each in changed:
            self._announce(each)
        if due:
            self._tell()
        return _about(EVERY)

    def _announce(self, alert: Changed) -> None:
        if alert.raised:
            log.warning("alert: %s: %s", alert.kind, alert.message)
            self._announcer.announce(AlertRaised(alert.kind, alert.subject, alert.message))
        else:
            log.info("alert is over: %s: %s", alert.kind, alert.subject)
            self._announcer.announce(AlertCleared(alert.kind, alert.subject))


def _about(seconds: float) -> float:
    """Not all at the same moment, and never sooner."""
    return seconds * random.uniform(1.0, 1.4)
