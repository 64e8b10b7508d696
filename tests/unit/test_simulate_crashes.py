"""Crashes in a simulation: stored steps do not run again, and no other work is lost."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from rota import Context, Retry, Rota
from rota.errors import ArgumentError, RunFailed
from rota.testing import crash_everywhere, simulate

app = Rota()
done: list[str] = []


@pytest.fixture(autouse=True)
def clear_done() -> None:
    done.clear()


async def note(what: str) -> str:
    done.append(what)
    return what


@app.task
async def double(n: int) -> int:
    done.append(f"double {n}")
    return 2 * n


@app.task
async def order(ctx: Context, item: str) -> dict[str, Any]:
    id = ctx.uuid()
    paid = await ctx.options(retry=Retry(max_attempts=2, delay=60)).step("charge", note, "charged")
    await ctx.sleep(days=1)
    sent = await asyncio.gather(
        ctx.step("pack", note, f"{item} packed"), ctx.step("label", note, f"{item} labelled")
    )
    good = await ctx.wait_signal("arrived", bool, timeout=timedelta(days=5), default=False)
    doubled = await ctx.map([double.bind(1), double.bind(2)])
    await ctx.step("thank", note, "thanked")
    return {"id": str(id), "paid": paid, "sent": sent, "good": good, "doubled": doubled}


async def test_simulate_crash_after_step_does_not_repeat_the_step() -> None:
    show = await simulate(order, item="cup", crash_after=1)

    assert show.crashes == 1
    assert done.count("charged") == 1
    show.assert_once()


async def test_simulate_crash_after_accepts_step_name() -> None:
    async def three(ctx: Context) -> None:
        begun.append(1)
        for name in ("a", "b", "c"):
            await ctx.step(name, note, name)

    begun: list[int] = []

    show = await simulate(three, crash_after="b")

    assert (show.steps, len(begun), done) == (["a", "b", "c"], 2, ["a", "b", "c"])


async def test_simulate_crash_after_unreached_step_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"crash after 9 step.*never reached it; it stored 'charge'"
    ):
        await simulate(order, item="cup", crash_after=9)
    with pytest.raises(ArgumentError, match="from 1"):
        await simulate(order, item="cup", crash_after=0)


async def test_crash_everywhere_gives_same_result_at_every_crash_point() -> None:
    signals = {"arrived": (timedelta(days=3), True)}

    show = await crash_everywhere(order, item="cup", signals=signals, fails={"charge": [OSError]})

    assert show.result["sent"] == ["cup packed", "cup labelled"]
    assert show.result["good"] is True
    assert show.result["doubled"] == [2, 4]
    assert show.slept == timedelta(days=3)
    # Once without a crash, and once for each of the crash points.
    assert done.count("charged") >= 8


async def test_crash_everywhere_crashes_once_at_every_point() -> None:
    begun: list[int] = []

    async def three(ctx: Context) -> None:
        begun.append(1)
        for name in ("a", "b", "c"):
            await ctx.step(name, note, name)

    await crash_everywhere(three)

    assert len(begun) == 1 + 2 * 4  # after each step, and after the function's return
    assert done == ["a", "b", "c"] * 5


async def test_crash_everywhere_different_result_shows_both_histories() -> None:
    begun: list[int] = []

    async def counts(ctx: Context) -> int:
        begun.append(1)
        await ctx.step("a", note, "a")
        return len(begun)

    with pytest.raises(AssertionError) as told:
        await crash_everywhere(counts)

    first, *_ = str(told.value).splitlines()
    assert first == "counts crashed after step 'a' (1 of 2): it returned 3, where it returned 1"
    assert "without a crash:" in str(told.value)


async def test_crash_repeats_step_running_in_another_branch() -> None:
    async def slow(what: str) -> None:
        await asyncio.sleep(0.02 if what == "slow" else 0)
        done.append(what)

    async def branches(ctx: Context) -> None:
        await asyncio.gather(ctx.step("slow", slow, "slow"), ctx.step("quick", slow, "quick"))

    crashed = await simulate(branches, crash_after="quick")
    await crash_everywhere(branches)

    assert crashed.executions == {"slow": 2, "quick": 1}
    with pytest.raises(AssertionError, match="step 'slow' ran 2 times"):
        crashed.assert_once()


async def test_crash_everywhere_changing_step_name_is_found() -> None:
    numbers = count()

    async def chancy(ctx: Context) -> None:
        await ctx.step("first", note, "first")
        await ctx.step(f"step {next(numbers)}", note, "second")

    with pytest.raises(AssertionError, match="crashed after step 'first'"):
        await crash_everywhere(chancy)


async def test_crash_everywhere_random_step_order_is_found() -> None:
    dice = random.Random(3)

    async def shuffled(ctx: Context) -> None:
        names = ["a", "b", "c", "d", "e"]
        dice.shuffle(names)
        for name in names:
            await ctx.step(name, note, name)

    with pytest.raises(AssertionError, match="ReplayMismatch"):
        await crash_everywhere(shuffled)


def test_crash_everywhere_sync_runs_plain_function() -> None:
    def plain(ctx: Context, n: int) -> int:
        first = ctx.sync.step("one", lambda: n + 1)
        ctx.sync.sleep(days=2)
        return ctx.sync.step("two", lambda: first * 2)

    assert crash_everywhere.sync(plain, n=4).result == 10


async def test_simulate_steps_after_crash_are_ignored() -> None:
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.step("one", note, "one")
        except BaseException:
            await ctx.step("never", note, "never")
            return "wrong"
        await ctx.step("two", note, "two")
        return "right"

    show = await simulate(stubborn, crash_after=1)

    assert (show.result, show.steps, done) == ("right", ["one", "two"], ["one", "two"])


async def test_crash_everywhere_code_catching_exceptions_is_interrupted() -> None:
    async def catching(ctx: Context) -> str:
        try:
            await ctx.sleep(days=1)
            await ctx.step("one", note, "one")
        except Exception as error:
            done.append(repr(error))
        return "right"

    show = await crash_everywhere(catching)

    assert (show.result, show.slept) == ("right", timedelta(days=1))
    assert set(done) == {"one"}


# Calls


@app.task
async def double_all(ctx: Context, n: int) -> list[int]:
    return await ctx.map([double.bind(each) for each in range(n)])


async def test_simulate_child_tasks_run_or_use_stubs() -> None:
    assert (await simulate(double_all, n=3)).result == [0, 2, 4]
    assert (await simulate(double_all, n=3, calls={"double": lambda n: n + 10})).result == [
        10,
        11,
        12,
    ]
    show = await simulate(double_all, n=2, calls={"double": 7})

    assert (show.result, show.calls) == ([7, 7], ["double", "double"])
    assert done == ["double 0", "double 1", "double 2"]


async def test_simulate_child_tasks_sleep_concurrently() -> None:
    @app.task(name="nap")
    async def nap(ctx: Context, days: int) -> int:
        await ctx.sleep(days=days)
        return days

    async def parent(ctx: Context) -> list[int]:
        return await ctx.map([nap.bind(3), nap.bind(5), nap.bind(2)])

    show = await simulate(parent)

    assert (show.result, show.slept) == ([3, 5, 2], timedelta(days=5))


async def test_simulate_failed_child_task_fails_the_run() -> None:
    def broken(n: int) -> int:
        raise ValueError("broken")

    show = await simulate(double_all, n=1, calls={"double": broken})

    assert show.state == "failed"
    assert "ValueError: broken" in str(show.error)


async def test_simulate_failed_child_task_runs_again_only_in_next_attempt() -> None:
    def broken(n: int) -> int:
        done.append(f"call {n}")
        if done.count(f"call {n}") == 1 and n == 1:
            raise ValueError("not yet")
        return n

    @app.task(name="careful")
    async def careful(ctx: Context) -> str:
        try:
            await ctx.map([double.bind(0), double.bind(1)])
        except RunFailed:
            await ctx.step("noted", note, "noted")
            if ctx.attempt == 1:
                raise
            return "still broken"
        return "fine"

    once = await simulate(careful, calls={"double": broken}, crash_after="noted")

    assert once.attempts == 2
    assert done == ["call 0", "call 1", "noted", "call 1"]


async def test_simulate_child_flow_needs_a_stub() -> None:
    flow = app.flow("etl")

    @flow.task
    async def extract(day: str) -> str:
        return day

    @app.task(name="etl_caller")
    async def caller(ctx: Context) -> dict[str, Any]:
        return await ctx.run(flow.bind(day="monday"))

    assert (await simulate(caller, calls={"etl": {"extract": "x"}})).result == {"extract": "x"}
    assert "a simulation runs no flows" in str((await simulate(caller)).error)


async def test_simulate_steps_of_isolated_task_are_refused() -> None:
    assert (await simulate(tripled, n=3)).result == 9
    assert 'cannot be used by a task with isolation="process"' in str(
        (await simulate(isolated_with_step)).error
    )


@app.task(isolation="process")
def tripled(n: int) -> int:
    return 3 * n


@app.task(isolation="process")
async def isolated_with_step(ctx: Context) -> None:
    await ctx.step("never", note, "never")
