"""Graphs of no-op jobs, written as an application would write them.

Every job of a run counts the run's number once. In graphs that pass results on, the number comes from the
results, so the sum shows that each job received the results of its predecessors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from tally import Tally

from rota import Context, Rota
from rota.app.flow import FlowTask

if TYPE_CHECKING:
    from run_rota import Startable


class Counter(Protocol):
    """Owner of the tally. Every measurement has a new tally, so it is read each time."""

    tally: Tally


def layers(app: Rota, counter: Counter, jobs: int) -> Startable:
    """1 → 4 → 4 → 1, with all results of a layer passed to the next: 24 edges."""
    flow = app.flow("layers")

    def mean(*given: int) -> int:
        n = sum(given) // len(given)
        counter.tally.saw(n)
        return n

    @flow.task
    async def a(n: int, url: str) -> int:
        return mean(n)

    async def b(a: int) -> int:
        return mean(a)

    async def c(b1: int, b2: int, b3: int, b4: int) -> int:
        return mean(b1, b2, b3, b4)

    for at in range(1, 5):
        flow.task(b, name=f"b{at}")
        flow.task(c, name=f"c{at}")

    @flow.task
    async def d(c1: int, c2: int, c3: int, c4: int) -> int:
        return mean(c1, c2, c3, c4)

    return flow


def ordered(app: Rota, counter: Counter, jobs: int) -> Startable:
    """The same graph without results: every job takes its arguments from the run's input."""
    flow = app.flow("ordered")

    async def job(n: int, url: str) -> None:
        counter.tally.saw(n)

    layer = [flow.task(job, name="a")]
    for letter, width in (("b", 4), ("c", 4), ("d", 1)):
        layer = [flow.task(job, name=f"{letter}{at}", after=layer) for at in range(1, width + 1)]
    return flow


def wide(app: Rota, counter: Counter, jobs: int) -> Startable:
    """1 → many → 1 as a flow. The middle jobs receive the result of the first; the last job receives no
    result, because a function does not have ten thousand parameters.
    """
    flow = app.flow("wide")

    @flow.task
    async def first(n: int, url: str) -> int:
        counter.tally.saw(n)
        return n

    async def part(first: int) -> int:
        counter.tally.saw(first)
        return first

    async def last(n: int, url: str) -> int:
        counter.tally.saw(n)
        return n

    parts = [flow.task(part, name=f"part{at}") for at in range(1, jobs - 1)]
    flow.task(last, after=parts)
    return flow


def mapped(app: Rota, counter: Counter, jobs: int) -> Startable:
    """1 → many → 1 with `ctx.map`: the calling job is both ends and receives every result."""

    @app.task
    async def part(n: int, url: str) -> int:
        counter.tally.saw(n)
        return n

    @app.task
    async def whole(ctx: Context, n: int, url: str) -> int:
        counter.tally.saw(n)
        many = jobs - 1
        results = await ctx.map(part.bind(n=n, url=url) for _ in range(many))
        if results != [n] * many:
            raise AssertionError(f"{len(results)} results of {many} calls, or wrong ones")
        return n

    return whole


def chain(app: Rota, counter: Counter, jobs: int) -> Startable:
    """Jobs one after the other."""
    flow = app.flow("chain")

    async def link(n: int, url: str) -> None:
        counter.tally.saw(n)

    before: list[FlowTask] = []
    for at in range(jobs):
        before = [flow.task(link, name=f"link{at}", after=before)]
    return flow


def diamond(app: Rota, counter: Counter, jobs: int) -> Startable:
    """1 → 2 → 1, with results passed on."""
    flow = app.flow("diamond")

    @flow.task
    async def top(n: int, url: str) -> int:
        counter.tally.saw(n)
        return n

    async def side(top: int) -> int:
        counter.tally.saw(top)
        return top

    flow.task(side, name="left")
    flow.task(side, name="right")

    @flow.task
    async def bottom(left: int, right: int) -> int:
        counter.tally.saw(left)
        return left + right

    return flow


Shape = Callable[[Rota, Counter, int], "Startable"]
SHAPES: Mapping[str, Shape] = {
    shape.__name__: shape for shape in (layers, ordered, wide, mapped, chain, diamond)
}
