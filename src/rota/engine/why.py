"""Why does it not run? For a job or a run, whatever it waits for, down to what holds all of it up.

A job that waits for others is held up by those of them that wait for nobody; one whose code has called
others, by what holds up the calls. Both are followed, so far and no further, and what is found at the end
comes first: that is what somebody has to see to, or to wait for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from rota.engine.reasons import LATE, contended, reasons
from rota.engine.takers import MOST
from rota.engine.telling import Around
from rota.model import codec
from rota.model.settings import Settings
from rota.model.why import Reason, Why, weigh
from rota.store import why
from rota.store.query import Query
from rota.store.why import Calling, Link, Place, Subject

Ask = Callable[..., Awaitable[list[Any]]]
"""Rows of each of the queries given, in one transaction."""

ROOTS = 50
"""Jobs that are looked at, of all that hold something up."""

DEEP = 5
"""So many calls are followed, one of the other."""

NAMED = 3
"""Jobs that are named where a job waits for many."""

LOCKS = 3
"""Locks that somebody waits for, and perhaps a job that runs."""

TURNS = 5
"""Jobs whose turn is looked up: each costs a look through a part of its queue."""


async def explain(ask: Ask, id: int, settings: Settings) -> Why | None:
    """None: there is no run and no job with this number."""
    [subjects] = await ask(why.subject(id))
    if not subjects:
        return None
    subject: Subject = subjects[0]
    if subject.state is not None:
        return _of(subject, [_ended(subject)], 0)
    looking = _Looking(ask, subject, settings)
    await looking.look()
    if any(each.code == "ended" and each.job == id for each in looking.found):
        # Meanwhile: what it came to is asked for once more, with its error and what to do.
        [subjects] = await ask(why.subject(id))
        if subjects and subjects[0].state is not None:
            return _of(subjects[0], [_ended(subjects[0])], 0)
    return _of(subject, looking.found, looking.left_out)


def asking(run: Callable[[Query[Any]], Awaitable[list[Any]]]) -> Ask:
    """Asks one after the other."""

    async def ask(*queries: Query[Any]) -> list[Any]:
        return [await run(each) for each in queries]

    return ask


class _Looking:
    def __init__(self, ask: Ask, subject: Subject, settings: Settings) -> None:
        self._ask = ask
        self._subject = subject
        self._settings = settings
        self._budget = ROOTS
        self.found: list[Reason] = []
        self.left_out = 0

    async def look(self) -> None:
        subject = self._subject
        if subject.is_flow:
            await self._look_at_run(subject.run, None, 0)
        elif subject.run == subject.id:
            await self._look_at([subject.id], None, 0)
        else:
            await self._look_at_run(subject.run, subject.id, 0)
        if not self.found:
            self.found.append(await self._nothing_left())

    async def _look_at_run(self, run: int, job: int | None, depth: int) -> None:
        [links] = await self._ask(why.chain(run, job, max(self._budget, 1)))
        roots = [each.job for each in links if each.root]
        near = [each for each in links if each.near]
        if near and job is not None:
            await self._lead(near, job)
        if links and links[0].root:
            self.left_out += links[0].of - len(roots)
        self._budget -= len(roots)
        await self._look_at(roots, run if job is None else None, depth)

    async def _lead(self, near: Sequence[Link], job: int) -> None:
        """What the job waits for itself, which is not yet why."""
        named: list[Place]
        [own], named = await self._ask(
            why.places([job]), why.places([each.job for each in near[:NAMED]])
        )
        words = ", ".join(f"{each.task} (job {each.job}, {each.place})" for each in named)
        if near[0].of > NAMED:
            words += f" and {near[0].of - NAMED:,} more"
        self.found.append(
            Reason(
                code="limit" if own.called else "parents",
                words=f"it is one of the calls of a job that makes so many at a time, and waits for {words}"
                if own.called
                else f"it waits for {words}",
                kind="job",
                subject=str(near[0].job),
                job=job,
                since=own.since,
            )
        )

    async def _look_at(self, jobs: Sequence[int], run: int | None, depth: int) -> None:
        """Why each of these does not run; `run`: the run they are of, whose parts are looked at, too."""
        if not jobs and run is None:
            return
        places, waits, calls = await self._ask(
            why.places(jobs), why.steps(jobs), why.calls(jobs, run, max(self._budget, 1))
        )
        around = await self._around(places, waits)
        if [each.place for each in places] == ["running"] and places[0].job == self._subject.id:
            [locks] = await self._ask(why.locks(LOCKS))
            self.found += [contended(each, self._subject.id) for each in locks]
        callers = {each.parent for each in calls if each.parent in jobs}
        for place in places:
            if place.job in callers and place.place == "running" and _is_well(place, around):
                own = [each for each in calls if each.parent == place.job]
                self.found.append(self._calls(place, own))
            else:
                self.found += reasons(place, around, of=self._subject.id)
        for each in calls:
            if depth >= DEEP or self._budget <= 0:
                self.left_out += 1
            else:
                await self._look_at_run(each.run, None, depth + 1)

    async def _around(self, places: Sequence[Place], waits: Sequence[why.Wait]) -> Around:
        silent = self._settings.dead_after / 2
        pairs = sorted({(each.queue, each.task) for each in places})
        ready = [each.job for each in places if each.place == "ready" and each.lost is None]
        crowds, turns = await self._ask(
            why.crowd(pairs, silent, LATE), why.turn(ready[:TURNS], MOST)
        )
        by_job: dict[int, list[why.Wait]] = {}
        for each in waits:
            by_job.setdefault(each.job, []).append(each)
        return Around(
            self._subject.now,
            self._settings.dead_after,
            {(each.queue, each.task): each for each in crowds},
            {each.job: each for each in turns},
            by_job,
        )

    def _calls(self, place: Place, calls: Sequence[Calling]) -> Reason:
        it = "it" if place.job == self._subject.id else f"job {place.job} ({place.task})"
        named = ", ".join(
            f"run {each.run}{f' of flow {each.flow}' if each.flow else ''}"
            for each in calls[:NAMED]
        )
        more = f" and {len(calls) - NAMED:,} more" if len(calls) > NAMED else ""
        return Reason(
            code="calls",
            words=f"{it} is on worker {place.worker} and waits for what it has called: {named}{more}",
            kind="run",
            subject=str(calls[0].run),
            job=place.job,
            since=calls[0].created,
        )

    async def _nothing_left(self) -> Reason:
        """All that it waits for has ended, or is just being moved."""
        [[echoes]] = await self._ask(why.echoes())
        words = (
            "all that it waited for has ended, and a worker that is there passes that on with its next beat"
            if echoes
            else "it has just moved from one place to another; ask again"
        )
        id = self._subject.id
        return Reason(
            code="settling" if echoes else "moving",
            words=words,
            kind="run" if self._subject.is_flow else "job",
            subject=str(id),
        )


def _is_well(place: Place, around: Around) -> bool:
    """Whether the worker that holds it is there and heard of: then it is the calls that it waits for."""
    return (
        place.presence in ("active", "draining")
        and (place.silent or 0.0) < around.dead_after / 2
        and place.unwanted is None
    )


def _ended(subject: Subject) -> Reason:
    error = codec.read_error(subject.error)
    words = {
        "succeeded": "it has succeeded",
        "failed": f"it has failed{f' with {error.type}' if error.type else ''}",
        "cancelled": "it was cancelled",
        "expired": "it expired before a worker took it",
        "skipped": "it was skipped: what it would have followed came out otherwise, or its skip_if said so",
    }
    again = subject.state in ("failed", "cancelled", "expired")
    return Reason(
        code="ended",
        words=words[subject.state or ""],
        kind="run" if subject.is_flow else "job",
        subject=str(subject.id),
        job=None if subject.is_flow else subject.id,
        since=subject.at,
        do=f"`rota retry {subject.run}` tries it again" if again else None,
        detail=error.message or None,
    )


def _of(subject: Subject, found: list[Reason], left_out: int) -> Why:
    told = _together(found)
    return Why(
        id=subject.id,
        run=subject.run,
        name=subject.name,
        is_flow=subject.is_flow,
        verdict=weigh(told, None if subject.is_flow else subject.id),
        reasons=sorted(told, key=lambda each: each.rank),
        left_out=left_out,
        now=subject.now,
    )


def _together(found: Sequence[Reason]) -> list[Reason]:
    """Several jobs with the same reason are one, with the first of them for an example."""
    first: dict[tuple[object, ...], Reason] = {}
    for each in found:
        own = each.kind == "job" and each.code not in ("parents", "limit", "ended")
        about = "" if own else each.subject
        key = (each.code, each.kind, about, each.stuck)
        known = first.get(key)
        first[key] = (
            each if known is None else msgspec.structs.replace(known, jobs=known.jobs + each.jobs)
        )
    return list(first.values())
