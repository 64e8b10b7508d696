"""What an app has open in one event loop: the database, the listener, news on their way.

Nothing is opened before it is needed. A program that runs several loops, one after the other or one per
thread, has one of these in each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING

from rota.coord.company import Company
from rota.coord.counts import Counts
from rota.coord.services import Services
from rota.engine import tracing
from rota.engine.call import FlowCall
from rota.engine.meters import Counted
from rota.engine.news import News
from rota.engine.spans import FLOW
from rota.engine.tracing import Tracing
from rota.engine.waiting import Waiting
from rota.engine.wakeups import Wakeups
from rota.model.events import Event
from rota.model.settings import Settings
from rota.store import flows, jobs
from rota.store.database import Database, run
from rota.store.jobs import Start, Started
from rota.store.plain import Plain

if TYPE_CHECKING:
    from rota.engine.worker import Worker

CHUNK = 2000
"""Jobs in one chunk of a copy."""

COPY_FROM = 500
"""So many plain jobs in one call, and copying them in is cheaper than a statement with arrays."""


JOBS_AT_ONCE = 20_000
"""Jobs of flows in one statement."""


_PLACE = attrgetter("queue", "task")

LEAVING = "this instance is leaving"
"""Why it leads no more."""


class Client:
    def __init__(
        self,
        dsn: str,
        settings: Settings,
        direct: str | None = None,
        announce: Callable[[Event], None] = lambda event: None,
        traced: Tracing | None = None,
    ) -> None:
        self.database = Database(dsn, settings, direct)
        self.news = News(self.database)
        self.wakeups = Wakeups(self.database)
        self.waiting = Waiting(self.database, self.wakeups)
        self.plain = Plain(self.database)
        self._announce = announce
        self.counted = Counted()
        self.worker: Worker | None = None
        """The one that works here, if any does."""
        self._tracing = traced or Tracing()
        self.counts = Counts()
        self.services: Services | None = None
        """Those that this instance stands by for."""
        self._company: Company | None = None
        self._listening: asyncio.Task[None] | None = None

    def listen(self) -> Wakeups:
        if self._listening is None:
            self._listening = asyncio.create_task(self.wakeups.run(), name="rota wakeups")
        return self.wakeups

    @property
    def company(self) -> Company:
        """For what instances agree on."""
        if self._company is None:
            self._company = Company(self.database, self.listen, self._announce)
            self._company.counts = self.counts
        return self._company

    async def resign(self) -> None:
        """Lead nothing any more: this instance is leaving."""
        if self._company is not None:
            await self._company.resign(LEAVING, but_services=True)

    @property
    def _patience(self) -> float:
        """How long a start waits for a database that is away. Once sent it is not sent again: without a
        key, two would be started."""
        return self.database.settings.patience

    async def start(self, job: Start) -> Started:
        at_once = job.at is None and job.delay is None
        rides = at_once and self.news.ride()
        with self._tracing.start(job.task, [job.queue]) as span:
            query = jobs.start(job, notify=rides, trace=span.trace)
            [started] = await self.database.run(query, self._patience)
            span.tell(tracing.started(started))
        if started.created:
            self.counted.arrive((job.queue, job.task))
        if at_once and not rides and started.created:
            self.news.tell([job.queue])
        return started

    async def start_many(self, starts: Sequence[Start]) -> list[Started]:
        """Start them all or none, in one transaction. Answers in the order given."""
        queues = {each.queue for each in starts}
        fresh: Iterable[Start] = starts
        with self._tracing.start(starts[0].task, list(queues), count=len(starts)) as span:
            if len(starts) >= COPY_FROM and all(each.is_plain for each in starts):
                answer = [Started(id, True) for id in await self._copy(starts, span.trace)]
            else:
                answer = await self._write(starts, span.trace)
                fresh = compress(starts, [each.created for each in answer])
        self.news.tell(queues)
        for place, count in Counter(map(_PLACE, fresh)).items():
            self.counted.arrive(place, count)
        return answer

    async def start_runs(self, calls: Sequence[FlowCall]) -> list[Started]:
        """Start flows, all of them or none, in one transaction. Answers in the order given."""
        # In the order of their keys, so that two calls with the same keys wait for each other instead of
        # deadlocking.
        order = sorted(range(len(calls)), key=lambda at: (calls[at].name, calls[at].run.key or ""))
        now = any(call.run.at is None and call.run.delay is None for call in calls)
        rides = now and self.news.ride()
        segment, size = [[calls[at].run for at in order[:1]]], 0
        for at in order[1:]:
            size += calls[at].run.size
            if size > JOBS_AT_ONCE:
                segment.append([])
                size = 0
            segment[-1].append(calls[at].run)
        with self._tracing.start(calls[0].name, count=len(calls), what=FLOW) as span:
            queries = [
                flows.start(some, notify=rides, traces=_each(span.trace, some)) for some in segment
            ]
            [answers] = await self.database.exchange([queries], self._patience)
            if len(calls) == 1:
                span.tell(tracing.started(answers[0][0]))
        if now and not rides:
            self.news.tell({queue for call in calls for queue in call.plan.queues})
        started = dict(zip(order, (each for some in answers for each in some), strict=True))
        for at, each in started.items():
            for node in calls[at].plan.nodes if each.created else ():
                self.counted.arrive((node.task.policy.queue, node.task.name))
        return [started[at] for at in range(len(calls))]

    async def _copy(self, starts: Sequence[Start], trace: str | None) -> list[int]:
        database = self.database
        way: tuple[str, Callable[..., bytes]] = "job/copy_jobs", jobs.rows_for_jobs
        if trace is not None:
            way = "job/copy_traced_jobs", partial(jobs.rows_for_traced_jobs, trace=trace)
        async with database.transaction(self._patience) as connection:
            [text] = await run(connection, jobs.reserve(len(starts)), database.schema)
            ids = text.split(",")
            chunks = [
                (ids[at : at + CHUNK], starts[at : at + CHUNK])
                for at in range(0, len(starts), CHUNK)
            ]
            for statement, rows in (
                way,
                ("job/copy_ready", jobs.rows_for_ready),
            ):
                await database.copy(statement, (rows(*chunk) for chunk in chunks), connection)
        return [int(id) for id in ids]

    async def _write(self, starts: Sequence[Start], trace: str | None) -> list[Started]:
        """Keyed jobs one statement each, in the order of their keys, so that two calls with the same
        keys wait for each other instead of deadlocking; the rest in one."""
        free = [index for index, each in enumerate(starts) if each.key is None]
        keyed = sorted(
            (index for index, each in enumerate(starts) if each.key is not None),
            key=lambda index: (starts[index].task, starts[index].key),
        )
        segment = [jobs.start(starts[index], notify=False, trace=trace) for index in keyed]
        many = [jobs.start_many([starts[at] for at in free], _each(trace, free))] if free else []
        [answers] = await self.database.exchange([[*segment, *many]], self._patience)
        answer: dict[int, Started] = {}
        for index, [started] in zip(keyed, answers, strict=False):
            answer[index] = started
        for index, id in zip(free, answers[-1] if free else (), strict=True):
            answer[index] = Started(id, True)
        return [answer[index] for index in range(len(starts))]

    async def close(self) -> None:
        if self._company is not None:
            await self._company.close()
        await self.news.close()
        if self._listening is not None:
            self.wakeups.stop()
            await self._listening
            await self.wakeups.close()
        await self.plain.close()
        await self.database.close()


def _each(trace: str | None, starts: Sequence[object]) -> list[str] | None:
    """One place in a trace for all that is started."""
    return None if trace is None else [trace] * len(starts)
