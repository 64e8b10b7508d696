"""Schedule of faults, made from a seed before the run, so that the same seed gives the same faults."""

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
    """Planned fault, `at` seconds after the beginning."""

    at: float
    kind: str
    slot: int | None = None
    lasts: float = 0.0
    how: dict[str, Any] = {}


class Plan(msgspec.Struct, frozen=True):
    """Parameters of a schedule."""

    seconds: float
    workers: int
    dead_after: float


Make = Callable[[Random, Plan], Iterator[Planned]]


def kills(random: Random, plan: Plan) -> Iterator[Planned]:
    """Kill a worker every half second or so, sometimes several at once."""
    at = 1.0
    while at < plan.seconds:
        many = random.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 2))
        for slot in random.sample(range(plan.workers), many):
            yield Planned(at, "kill", slot, random.uniform(0.0, 0.3))
        at += random.uniform(0.45, 0.95)


def freezes(random: Random, plan: Plan) -> Iterator[Planned]:
    """Freeze all workers but two for longer than `dead_after`, then leave time for them to wake."""
    at = 1.0
    while at < plan.seconds:
        longest = 0.0
        for slot in random.sample(range(plan.workers), plan.workers - 2):
            lasts = plan.dead_after * random.uniform(1.2, 1.6)
            begins = random.uniform(0.0, 0.3)
            longest = max(longest, begins + lasts)
            yield Planned(at + begins, "freeze", slot, lasts)
        at += longest + random.uniform(0.8, 1.5)


def freezes_near_dead_after(random: Random, plan: Plan) -> Iterator[Planned]:
    """Freeze workers until about the time at which they are declared dead."""
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
    """Stop the server for three times `dead_after`, and for some workers a little longer."""
    at = 1.5
    while at < plan.seconds:
        lasts = 3 * plan.dead_after
        late = random.sample(range(plan.workers), plan.workers // 2)
        yield Planned(at, "outage", lasts=lasts, how={"late": late, "by": plan.dead_after * 0.2})
        at += lasts + 2 * plan.dead_after + random.uniform(1.0, 3.0)


def blackouts(random: Random, plan: Plan) -> Iterator[Planned]:
    """Stop the server once; half of the workers regain access later than the rest."""
    late = random.sample(range(plan.workers), plan.workers // 2)
    lasts = plan.dead_after * 1.3
    yield Planned(2.0, "outage", lasts=lasts, how={"late": late, "by": plan.dead_after * 0.4})


def cuts(random: Random, plan: Plan) -> Iterator[Planned]:
    at = 0.5
    while at < plan.seconds:
        matching = random.choice((CLAIM, END, END, END, EFFECT, EFFECT, BEAT, None))
        where = random.choice(("before", "sent", "sent", "answered", "answered", "late"))
        if where == "late" and matching in (BEAT, None):
            where = "sent"  # a delayed heartbeat is a legitimate reason to be declared dead
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


def noticed_network_faults(random: Random, plan: Plan) -> Iterator[Planned]:
    """Yield only the network faults that both sides notice."""
    heard = ("reset", "hold", "terminate")
    yield from (each for each in network(random, plan) if each.kind in heard)


def drains(random: Random, plan: Plan) -> Iterator[Planned]:
    at = 1.0
    while at < plan.seconds:
        yield Planned(at, "drain", random.randrange(plan.workers))
        at += random.uniform(0.3, 1.0)


def no_faults(random: Random, plan: Plan) -> Iterator[Planned]:
    """Inject no faults; the jobs themselves kill workers."""
    yield from ()


def mixed(random: Random, plan: Plan) -> Iterator[Planned]:
    """Combine all kinds of faults, two or three at a time."""
    parts: tuple[tuple[Make, float, float], ...] = (
        (freezes, 0.0, 0.4),
        (cuts, 0.0, 0.7),
        (kills, 0.4, 0.9),
        (drains, 0.4, 0.6),
        (noticed_network_faults, 0.5, 0.7),
        (crashes, 0.7, 1.0),
    )
    yield from _combine(random, plan, parts)


def durable(random: Random, plan: Plan) -> Iterator[Planned]:
    """Combine kills throughout with freezes, drains and crashes of the server."""
    parts: tuple[tuple[Make, float, float], ...] = (
        (kills, 0.0, 1.0),
        (freezes, 0.0, 0.5),
        (crashes, 0.4, 1.0),
        (drains, 0.3, 0.5),
    )
    yield from _combine(random, plan, parts)


def _combine(
    random: Random, plan: Plan, parts: tuple[tuple[Make, float, float], ...]
) -> Iterator[Planned]:
    """Run each part between its two shares of the time."""
    for make, begins, ends in parts:
        share = msgspec.structs.replace(plan, seconds=plan.seconds * (ends - begins))
        for each in make(random, share):
            if each.at < share.seconds:
                yield msgspec.structs.replace(each, at=each.at + plan.seconds * begins)


def schedule(make: Make, seed: str, plan: Plan) -> list[Planned]:
    """Return all faults, ordered by time."""
    made = (each for each in make(Random(seed), plan) if each.at < plan.seconds)
    return sorted(made, key=lambda each: each.at)
