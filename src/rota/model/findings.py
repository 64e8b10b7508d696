"""What there is to tell of what was seen, by the rules, and what to do about it.

What is over its limit is told. What is no longer, but not by much, is a finding too: it opens nothing, and
keeps open what is (`over` is false).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from rota.model import rules as kinds
from rota.model.rules import OFF, Rules
from rota.model.sights import MOST, Alive, Dead, Head, Late, Seen

BACK = 0.5
"""What was told is over below this part of its limit."""

REFUSED_WITHIN = 300.0
"""Seconds within which completions that were refused are counted."""

DATABASE = "database"


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    subject: str
    message: str
    over: bool = True
    """Over its limit. Else it keeps open what is."""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.subject


Memory = Mapping[str, tuple[int, float]]
"""Of each place, which job was first there, by its seq, and since when, in seconds since 1970."""


def remember(memory: Memory, heads: Iterable[Head], now: datetime) -> Memory:
    """A job that came back from somewhere has no row that tells since when it is ready; who looks again and
    finds it first still, knows how long at least."""
    known: dict[str, tuple[int, float]] = {}
    for head in heads:
        seq, since = memory.get(head.place, (None, 0.0))
        same = seq == head.seq and since <= now.timestamp()
        known[head.place] = (head.seq, since if same else now.timestamp())
    return known


def findings(rules: Rules, seen: Seen, memory: Memory) -> list[Finding]:
    return [
        *_old(rules, seen, memory),
        *_dead(rules, seen),
        *_late(rules, seen),
        *_failing(rules, seen),
        *_quarantined(rules, seen),
        *_refused(rules, seen),
        *_server(rules, seen),
    ]


def _old(rules: Rules, seen: Seen, memory: Memory) -> Iterable[Finding]:
    oldest: dict[str, tuple[float, Head]] = {}
    for head in seen.heads:
        _, since = memory.get(head.place, (0, seen.now.timestamp()))
        age = max(head.age or 0.0, seen.now.timestamp() - since)
        if head.queue not in oldest or age > oldest[head.queue][0]:
            oldest[head.queue] = age, head
    for queue, (age, head) in oldest.items():
        limit = rules.limit(kinds.QUEUE_OLD, queue)
        if age >= limit * BACK:
            message = (
                f"in queue {queue!r} job {head.job} ({head.task}) has been ready for {age:.0f} s, "
                f"{limit:.0f} s are allowed; {_why_it_waits(head)}"
            )
            yield Finding(kinds.QUEUE_OLD, queue, message, age >= limit)


def _why_it_waits(head: Head) -> str:
    if head.paused:
        return f"the queue is paused: `rota queues resume {head.queue}` has it taken again"
    if not head.serving:
        return f"no worker that is there serves it: start one, `rota worker … -q {head.queue}`"
    if not head.knowing:
        return (
            f"of {_many(head.serving, 'worker')} there none knows the task: deploy the code that has "
            "it, or cancel what waits"
        )
    return (
        f"it can go to {_many(head.knowing, 'worker')}, at work on {head.running} of at most "
        f"{head.capacity} jobs: add workers, or see what keeps them (`rota workers`, `rota queues`)"
    )


def _dead(rules: Rules, seen: Seen) -> Iterable[Finding]:
    limit = rules.limit(kinds.WORKER_DEAD)
    if limit == OFF:
        return
    missing = {each.worker for each in unreplaced(seen.dead, seen.alive)}
    by_host: dict[str, list[Dead]] = defaultdict(list)
    for each in seen.dead:
        if each.worker in missing or (seen.now - each.beat).total_seconds() < limit:
            by_host[each.host].append(each)
    for host, died in by_host.items():
        last = max(died, key=lambda each: (each.beat, each.worker))
        others = f", and {_many(len(died) - 1, 'other')} there" if len(died) > 1 else ""
        place = (
            "nobody has taken its place: start another"
            if last.worker in missing
            else "another has taken its place"
        )
        message = (
            f"worker {last.worker} on {host} (process {last.pid}) died, it was last heard of at "
            f"{last.beat:%Y-%m-%d %H:%M:%S} UTC{others}; what it held went back, and {place}. Look at its "
            f"log and why it ended (out of memory?): `rota workers --all`, `rota alerts close "
            f"'{kinds.WORKER_DEAD}' {host}`"
        )
        yield Finding(kinds.WORKER_DEAD, host, message)


def unreplaced(dead: Iterable[Dead], alive: Iterable[Alive]) -> list[Dead]:
    """Those in whose place nobody has come: a worker of the same queues that started since, for each."""
    fresh: dict[tuple[str, ...], list[datetime]] = defaultdict(list)
    for one in alive:
        fresh[tuple(sorted(one.queues))].append(one.started)
    for starts in fresh.values():
        starts.sort()
    missing = []
    # The last first: who can stand for it can stand for those before it.
    for each in sorted(dead, key=lambda each: (each.beat, each.worker), reverse=True):
        starts = fresh[tuple(sorted(each.queues))]
        if starts and starts[-1] > each.beat:
            starts.pop()
        else:
            missing.append(each)
    return missing


def _late(rules: Rules, seen: Seen) -> Iterable[Finding]:
    limit = rules.limit(kinds.SCHEDULE_LATE)
    for each in seen.late:
        if each.late >= limit * BACK:
            message = (
                f"schedule {each.schedule!r} is late by {each.late:.0f} s, {limit:.0f} s are allowed; "
                f"{_why_it_is_late(each)}"
            )
            yield Finding(kinds.SCHEDULE_LATE, each.schedule, message, each.late >= limit)


def _why_it_is_late(late: Late) -> str:
    if not late.known:
        return (
            f"no worker that is there knows {late.target!r}: start one that does, deploy the code that "
            "has it, or remove the schedule"
        )
    if late.why:
        # Not why: that may quote its input, and alerts go to places that are not to see it.
        return f"it was put off; `rota schedules show {late.schedule}` says why"
    return "are its workers well? (`rota workers`)"


def _failing(rules: Rules, seen: Seen) -> Iterable[Finding]:
    limit = rules.limit(kinds.SCHEDULE_FAILS)
    if limit == OFF:
        return
    for each in seen.failing:
        if not each.failures:
            continue
        last = f", the last is run {each.run} (`rota show {each.run}`)" if each.run else ""
        rest = (
            f"and is paused for it: put right what is wrong, then `rota schedules resume {each.schedule}`"
            if each.paused
            else "and goes on"
        )
        message = (
            f"schedule {each.schedule!r} has failed {each.failures} times in a row{last}, {rest}"
        )
        over = each.paused or each.failures >= limit
        yield Finding(kinds.SCHEDULE_FAILS, each.schedule, message, over)


def _quarantined(rules: Rules, seen: Seen) -> Iterable[Finding]:
    for each in seen.quarantined:
        limit = rules.limit(kinds.QUARANTINE, each.queue)
        if each.jobs >= max(limit * BACK, 1):
            message = (
                f"queue {each.queue!r} has {_many(each.jobs, 'job')} in quarantine, such as {each.job} "
                f"({each.task}), at which workers died again and again. Find out why, then `rota release "
                f"{each.job}` or `rota cancel {each.job}` (`rota quarantine` lists them)"
            )
            yield Finding(kinds.QUARANTINE, each.queue, message, each.jobs >= limit)


def _refused(rules: Rules, seen: Seen) -> Iterable[Finding]:
    limit = rules.limit(kinds.REFUSED)
    for each in seen.refused:
        if each.jobs >= max(limit * BACK, 1):
            message = (
                f"the database refused {_many(each.jobs, 'completion')} from {each.host} within "
                f"{REFUSED_WITHIN / 60:.0f} minutes: the jobs had been taken away, and are done again "
                "elsewhere. A worker there freezes, or does not reach the database for longer than "
                "ROTA_DEAD_AFTER: see its log, its lag in `rota workers`, and the network"
            )
            yield Finding(kinds.REFUSED, each.host, message, each.jobs >= limit)


def _server(rules: Rules, seen: Seen) -> Iterable[Finding]:
    for each in seen.server:
        limit = rules.limit(kinds.SNAPSHOT_OLD)
        if each.snapshot is not None and each.snapshot >= limit * BACK:
            message = (
                f"a transaction has been open for {each.snapshot:.0f} s, {limit:.0f} s are allowed: "
                f"process {each.pid} of the server ({each.application or 'without a name'}, "
                f"{each.state}). While it is, nothing can be removed for good, and queues grow slow. End "
                f"it where it runs, or by `select pg_terminate_backend({each.pid})`"
            )
            yield Finding(kinds.SNAPSHOT_OLD, DATABASE, message, each.snapshot >= limit)
        limit = rules.limit(kinds.NOTIFY_FULL)
        if each.notify >= limit * BACK:
            message = (
                f"the server's queue of notifications is {each.notify:.0%} full, {limit:.0%} are "
                "allowed: a session that listens has a transaction open. When it is full, every NOTIFY "
                "fails, and with it the transaction. Look in pg_stat_activity for the oldest xact_start, "
                "and end that session"
            )
            yield Finding(kinds.NOTIFY_FULL, DATABASE, message, each.notify >= limit)


def _many(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what}"
    return f"{count}{' or more' if count >= MOST else ''} {what}s"
