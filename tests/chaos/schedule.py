"""Which fault comes when: made from a seed before anything runs, so that a seed breaks the same things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec

CLAIM = r"insert into \w+\.claims"
END = r"insert into \w+\.outcomes"
EFFECT = r"chaos\.effects|^commit"
BEAT = r"update \w+\.workers"


class Planned(msgspec.Struct, frozen=True):
    """A fault to come, so many seconds after the beginning."""

    at: float
    kind: str
    slot: int | None = None
    lasts: float = 0.0
    how: dict[str, Any] = {}


class Plan(msgspec.Struct, frozen=True):
    """What a schedule is made for."""

    seconds: float
    workers: int
    dead_after: float


Make = Callable[[Random, Plan], Iterator[Planned]]


def kills(random: Random, plan: Plan) -> Iterator[Planned]:
    """One every half second or so, now and then several at once."""
    at = 1.0
    while at < plan.seconds:
        many = random.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 2))
        for slot in random.sample(range(plan.workers), many):
            yield Planned(at, "kill", slot, random.uniform(0.0, 0.3))
        at += random.uniform(0.45, 0.95)


def freezes(random: Random, plan: Plan) -> Iterator[Planned]:
    """All but two, for longer than they may be silent; then a moment in which they wake."""
    at = 1.0
    while at < plan.seconds:
        longest = 0.0
        for slot in random.sample(range(plan.workers), plan.workers - 2):
            lasts = plan.dead_after * random.uniform(1.2, 1.6)
            begins = random.uniform(0.0, 0.3)
            longest = max(longest, begins + lasts)
            yield Planned(at + begins, "freeze", slot, lasts)
        at += longest + random.uniform(0.8, 1.5)


def brinks(random: Random, plan: Plan) -> Iterator[Planned]:
    """Freezes that end about when somebody notices."""
    at = 1.0
    while at < plan.seconds:
        for slot in random.sample(range(plan.workers), plan.workers - 2):
            lasts = plan.dead_after + random.uniform(0.0, 1.0)
            yield Planned(at + random.uniform(0.0, 0.2), "freeze", slot, lasts)
        at += plan.dead_after + random.uniform(1.5, 2.0)


def crashes(random: Random, plan: Plan) -> Iterator[Planned]:
    at = 1.5
    while at < plan.seconds:
        yield Planned(at, "crash", how={"immediately": random.random() < 0.5})
        at += random.uniform(3.5, 6.5)


def outages(random: Random, plan: Plan) -> Iterator[Planned]:
    """The server is away three times as long as a worker may be silent, for some a little longer."""
    at = 1.5
    while at < plan.seconds:
        lasts = 3 * plan.dead_after
        late = random.sample(range(plan.workers), plan.workers // 2)
        yield Planned(at, "outage", lasts=lasts, how={"late": late, "by": plan.dead_after * 0.2})
        at += lasts + 2 * plan.dead_after + random.uniform(1.0, 3.0)


def blackouts(random: Random, plan: Plan) -> Iterator[Planned]:
    """One short outage, from which half of the workers come back later than the others."""
    late = random.sample(range(plan.workers), plan.workers // 2)
    lasts = plan.dead_after * 1.3
    yield Planned(2.0, "outage", lasts=lasts, how={"late": late, "by": plan.dead_after * 0.4})


def cuts(random: Random, plan: Plan) -> Iterator[Planned]:
    at = 0.5
    while at < plan.seconds:
        matching = random.choice((CLAIM, END, END, END, EFFECT, EFFECT, BEAT, None))
        where = random.choice(("before", "sent", "sent", "answered", "answered", "late"))
        if where == "late" and matching in (BEAT, None):
            where = (
                "sent"  # a beat that is held up is the silence that workers are declared dead for
            )
        hold = random.uniform(0.2, 1.5)
        yield Planned(at, "cut", how={"point": where, "matching": matching, "hold_seconds": hold})
        at += random.uniform(0.2, 0.6)


def network(random: Random, plan: Plan) -> Iterator[Planned]:
    at = 0.5
    while at < plan.seconds:
        kind = random.choice(
            ("reset", "reset", "half_open", "drop", "hold", "terminate", "terminate")
        )
        slot = random.randrange(plan.workers)
        if kind == "drop":
            yield Planned(at, kind, slot, random.uniform(0.3, 2.0) * plan.dead_after)
        elif kind == "half_open":
            yield Planned(at, kind, slot, how={"gone": random.choice(("client", "server"))})
        elif kind == "hold":
            yield Planned(at, kind, lasts=random.uniform(0.1, 0.6))
        elif kind == "terminate":
            yield Planned(at, kind, how={"share": random.choice((0.1, 0.3, 1.0))})
        else:
            yield Planned(at, kind, random.choice((slot, None)))
        at += random.uniform(0.3, 1.2)


def breaks(random: Random, plan: Plan) -> Iterator[Planned]:
    """Of these, the ones that both sides hear of."""
    heard = ("reset", "hold", "terminate")
    yield from (each for each in network(random, plan) if each.kind in heard)


def drains(random: Random, plan: Plan) -> Iterator[Planned]:
    at = 1.0
    while at < plan.seconds:
        yield Planned(at, "drain", random.randrange(plan.workers))
        at += random.uniform(0.3, 1.0)


def nothing(random: Random, plan: Plan) -> Iterator[Planned]:
    """The jobs are faults enough."""
    yield from ()


def mixed(random: Random, plan: Plan) -> Iterator[Planned]:
    """A little of everything, two or three kinds at a time."""
    parts: tuple[tuple[Make, float, float], ...] = (
        (freezes, 0.0, 0.4),
        (cuts, 0.0, 0.7),
        (kills, 0.4, 0.9),
        (drains, 0.4, 0.6),
        (breaks, 0.5, 0.7),
        (crashes, 0.7, 1.0),
    )
    yield from _together(random, plan, parts)


def durable(random: Random, plan: Plan) -> Iterator[Planned]:
    """Kills all the while, freezes, and a server that crashes now and then."""
    parts: tuple[tuple[Make, float, float], ...] = (
        (kills, 0.0, 1.0),
        (freezes, 0.0, 0.5),
        (crashes, 0.4, 1.0),
        (drains, 0.3, 0.5),
    )
    yield from _together(random, plan, parts)


def _together(
    random: Random, plan: Plan, parts: tuple[tuple[Make, float, float], ...]
) -> Iterator[Planned]:
    """Each from one share of the time to another."""
    for make, begins, ends in parts:
        share = msgspec.structs.replace(plan, seconds=plan.seconds * (ends - begins))
        for each in make(random, share):
            if each.at < share.seconds:
                yield msgspec.structs.replace(each, at=each.at + plan.seconds * begins)


def schedule(make: Make, seed: str, plan: Plan) -> list[Planned]:
    """All of them, in the order of their times."""
    made = (each for each in make(Random(seed), plan) if each.at < plan.seconds)
    return sorted(made, key=lambda each: each.at)
