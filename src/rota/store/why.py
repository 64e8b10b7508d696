"""Read-only questions about what does not run: where it is, and who or what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.query import Query

FAR = 20_000
"""So far behind its number a job that came back is looked for."""


class Subject(msgspec.Struct, frozen=True):
    id: int
    run: int
    is_flow: bool
    name: str
    """Empty: calls a job has made."""
    state: str | None
    """How it ended; None: it has not."""
    at: datetime | None
    error: bytes | None
    unwanted: datetime | None
    """Since when somebody wishes it to stop."""
    now: datetime


class Link(msgspec.Struct, frozen=True):
    job: int
    root: bool
    near: bool
    of: int
    """How many there are of its kind, listed or not."""


class Place(msgspec.Struct, frozen=True):
    """One job, and where it is."""

    job: int
    run: int
    called: bool
    """It is one of the calls of a job."""
    task: str
    queue: str
    place: str
    outcome: str
    attempt: int | None
    since: datetime | None
    created: datetime
    expires: datetime | None
    wake: datetime | None
    """None: no time wakes it."""
    signals: list[str] | None
    rule: str | None
    lost: int | None
    """Below 0: it was lost with a worker; None: it is no suspect."""
    worker: int | None
    until: datetime | None
    """When its worker may hold it no longer."""
    alone: bool | None
    presence: str | None
    host: str | None
    pid: int | None
    silent: float | None
    lag: float | None
    running: int | None
    capacity: int | None
    together: int | None
    """How many jobs its worker holds."""
    done: float | None
    total: float | None
    note: str | None
    heard: datetime | None
    unwanted: datetime | None
    error: bytes | None
    """Of its last attempt; of one in quarantine, why it is there."""
    paused: datetime | None
    """Since when its queue is paused; by whom and why."""
    who: str | None
    why: str | None


class Wait(msgspec.Struct, frozen=True):
    job: int
    kind: str
    name: str
    number: int
    tries: int
    at: datetime
    until: datetime | None
    error: bytes | None


class Calling(msgspec.Struct, frozen=True):
    run: int
    parent: int
    flow: str
    created: datetime


class Crowd(msgspec.Struct, frozen=True):
    """Who is there for the jobs of one task in one queue."""

    queue: str
    task: str
    there: int
    alive: int
    """Those of them that have been heard of."""
    wakers: int
    """Those that have and are not about to leave: they wake what sleeps."""
    serve: int
    know: int
    takers: int
    """Those that serve and know and are not about to leave."""
    kinds: list[str]
    """Of each that serves and knows: what keeps it, or `free`."""
    whom: list[int]
    running: int
    versions: list[str]
    """Of those that serve the queue and do not know the task."""
    queues: list[str]


class Turn(msgspec.Struct, frozen=True):
    job: int
    seq: int | None
    ahead: int


class Wanted(msgspec.Struct, frozen=True):
    """A lock that somebody waits for."""

    name: str
    permit: int
    host: str
    pid: int
    label: str
    since: datetime
    expires: datetime


def subject(id: int) -> Query[Subject]:
    return Query("why/subject", {"id": id}, Subject)


def chain(run: int, job: int | None, limit: int) -> Query[Link]:
    return Query("why/chain", {"run": run, "job": job, "limit": limit}, Link)


def places(jobs: Sequence[int]) -> Query[Place]:
    return Query("why/places", {"jobs": list(jobs)}, Place)


def steps(jobs: Sequence[int]) -> Query[Wait]:
    return Query("why/steps", {"jobs": list(jobs)}, Wait)


def calls(jobs: Sequence[int], run: int | None, limit: int) -> Query[Calling]:
    return Query("why/calls", {"jobs": list(jobs), "run": run, "limit": limit}, Calling)


def crowd(pairs: Sequence[tuple[str, str]], silent: float, late: float) -> Query[Crowd]:
    """`silent`: for so many seconds not heard of; `late`: so many seconds behind with everything."""
    queues, tasks = [queue for queue, _ in pairs], [task for _, task in pairs]
    params = {"queues": queues, "tasks": tasks, "silent": silent, "late": late}
    return Query("why/crowd", params, Crowd)


def turn(jobs: Sequence[int], most: int) -> Query[Turn]:
    """How many are before each, counted up to `most`."""
    return Query("why/turn", {"jobs": list(jobs), "far": FAR, "most": most}, Turn)


def locks(limit: int) -> Query[Wanted]:
    return Query("why/locks", {"limit": limit}, Wanted)


def echoes() -> Query[bool]:
    return Query("why/echoes", {}, bool)
