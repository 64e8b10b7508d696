"""Scenario that uses most statements of a worker and its clients, and checks what became of its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest

from rota import Context, Retry, Rota, RotaError, RunFailed
from rota.engine.durable.journal import WorkerJournal
from rota.errors import DatabaseError
from support.queries import ONCE, fetch, until

T = TypeVar("T")

NOT_SUCCEEDED_AT_ONCE = """
select distinct task, state, attempt
  from rota.job_state
 where (state, attempt) <> ('succeeded', 1) and task <> 'flaky'
"""

PASSING_CODES = [
    "53100",  # disk full: the server cannot do it now
    "57014",  # statement timeout: the server did not finish it
    "XX000",  # internal error: nothing is known about it
]
MORE_PASSING_CODES = ["40001", "40P01", "55P03", "25006", "53200", "53300", "58030", "XX001"]


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.engine.worker.claim_loop.CONTENDED_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


class Scenario:
    """An app that uses jobs, flows, steps, signals, schedules, locks, leaders and services once each."""

    def __init__(self, app: Rota) -> None:
        self.app = app
        self.calls: Counter[str] = Counter()
        """Calls of user code, by the name of the round and the place in the code."""
        self.iterations = 0

        @app.task(retry=ONCE)
        async def add(place: str, n: int) -> int:
            self.calls[place] += 1
            return n + 1

        @app.task(retry=ONCE)
        def plain(ctx: Context, place: str) -> str:
            self.calls[place] += 1
            ctx.progress(1, 2)
            ctx.log("half")
            ctx.sync.checkpoint({"place": place})
            return place

        @app.task(retry=Retry(max_attempts=2, delay=0))
        async def flaky(ctx: Context, place: str) -> int:
            self.calls[place] += 1
            if ctx.attempt == 1:
                raise ValueError("not yet")
            return ctx.attempt

        @app.task(retry=ONCE)
        async def durable(ctx: Context, place: str) -> list[Any]:
            async def step(value: int) -> int:
                self.calls[f"{place} step {value}"] += 1
                return value

            first = await ctx.step("first", step, 1)
            await ctx.sleep(0.1)
            payload = await ctx.wait_signal("go")
            results = await ctx.map([add.bind(place=f"{place} child {n}", n=n) for n in range(2)])
            return [first, payload, results]

        flow = app.flow("diamond")

        @flow.task(retry=ONCE)
        async def top(place: str) -> int:
            self.calls[place] += 1
            return 1

        @flow.task(after=[top], retry=ONCE)
        async def left() -> int:
            return 2

        @flow.task(after=[top], retry=ONCE)
        async def right() -> int:
            return 3

        @flow.task(after=[left, right], retry=ONCE)
        async def bottom() -> int:
            return 4

        @app.service("watch", every=0.05)
        async def watch() -> None:
            self.iterations += 1

        self.add, self.plain, self.flaky, self.durable, self.flow = add, plain, flaky, durable, flow

    async def run(self, round: str) -> None:
        """Use everything once. Raise AssertionError if anything was lost, doubled or charged."""
        app, key = self.app, self._key(round)
        iterations = self.iterations
        async with AsyncExitStack() as stack:
            await user_call(lambda: stack.enter_async_context(app.worker(concurrency=4)))
            single = await user_call(
                lambda: self.add.options(key=key("single")).start(place=key("single"), n=1)
            )
            many = await user_call(
                lambda: app.start_many(
                    [
                        self.add.options(key=key(f"many {n}")).bind(place=key(f"many {n}"), n=n)
                        for n in range(3)
                    ]
                )
            )
            late = await user_call(
                lambda: self.plain.options(key=key("late"), delay=0.05).start(place=key("late"))
            )
            flaky = await user_call(
                lambda: self.flaky.options(key=key("flaky")).start(place=key("flaky"))
            )
            durable = await user_call(
                lambda: self.durable.options(key=key("durable")).start(place=key("durable"))
            )
            diamond = await user_call(
                lambda: self.flow.options(key=key("diamond")).start(place=key("diamond"))
            )
            await user_call(lambda: durable.signal("go", {"round": round}))
            await user_call(lambda: app.queues.pause("other", "for the test"))
            await user_call(lambda: app.queues.resume("other"))
            await user_call(
                lambda: app.schedules.create(
                    key("tick"),
                    task=self.add,
                    every=0.1,
                    max_runs=1,
                    input={"place": key("tick"), "n": 0},
                )
            )
            await user_call(self._use_lock)
            await user_call(lambda: app.rate_limit(key("rate"), 100, per=1).take())
            once = await user_call(lambda: app.once(key("once"), self._count, key("once")))
            async with app.leader(key("leader")).term() as term:
                assert term.number > 0
            assert await user_call(lambda: app.once(key("once"), self._count, key("once"))) == once

            assert await user_call(single.result) == 2
            assert [await user_call(each.result) for each in many] == [1, 2, 3]
            assert await user_call(late.result) == key("late")
            assert await user_call(flaky.result) == 2
            assert await user_call(durable.result) == [1, {"round": round}, [1, 2]]
            assert (await user_call(diamond.result))["bottom"] == 4

            async def ticked() -> bool:
                return self.calls[key("tick")] > 0 and self.iterations > iterations

            await until(ticked)
            await user_call(lambda: app.schedules.delete(key("tick")))
        doubled = {
            place: count
            for place, count in self.calls.items()
            if place.startswith(round) and count != (2 if place == key("flaky") else 1)
        }
        assert not doubled, f"{round}: called more than once: {doubled}"

    @staticmethod
    def _key(round: str) -> Callable[[str], str]:
        return lambda name: f"{round} {name}"

    async def _count(self, place: str) -> int:
        self.calls[place] += 1
        return self.calls[place]

    async def _use_lock(self) -> None:
        async with self.app.lock("scenario", ttl=30):
            pass


async def user_call(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a public call while it raises a DatabaseError, as a user would. Let no other error pass."""
    while True:
        try:
            return await call()
        except RunFailed:
            raise
        except DatabaseError:
            continue
        except RotaError as error:
            raise AssertionError(f"unexpected error of a public call: {error!r}") from error


async def assert_nothing_charged(dsn: str) -> None:
    """Every job succeeded, and at its first attempt."""
    assert await fetch(dsn, NOT_SUCCEEDED_AT_ONCE) == []
