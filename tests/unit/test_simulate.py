"""`simulate`: a durable function runs inline, with a simulated clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import Context, Retry, Rota
from rota.errors import ArgumentError, ReplayMismatch, RotaError, SignalTimeout, StepFailed
from rota.testing import simulate
from rota.testing.simulate import Simulate

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)

app = Rota()
done: list[str] = []


@pytest.fixture(autouse=True)
def clear_done() -> None:
    done.clear()


async def note(what: str) -> str:
    done.append(what)
    return what


@app.task
async def onboard(ctx: Context, user: int) -> str:
    await ctx.step("account", note, f"account {user}")
    await ctx.sleep(days=3)
    survey = await ctx.wait_signal(
        "survey", dict[str, int], timeout=timedelta(days=7), default=None
    )
    await ctx.step("thank", note, "thanks")
    return "silent" if survey is None else f"score {survey['score']}"


# Results


async def test_simulate_result_is_decoded_by_hints_as_in_a_run() -> None:
    @app.task(name="pair")
    async def pair(ctx: Context, first: int) -> tuple[int, datetime]:
        return first, ctx.now()

    show = await simulate(pair, 7, now=NEW_YEAR)

    assert show.result == (7, NEW_YEAR)  # read back from JSON by the hints, as run.result() is
    assert show.state == "succeeded"


async def test_simulate_lists_steps_in_order_with_execution_counts() -> None:
    show = await simulate(onboard, user=42)

    assert show.steps == ["account", "thank"]
    assert show.executions == {"account": 1, "thank": 1}
    assert done == ["account 42", "thanks"]
    show.assert_once()


async def test_simulate_sleep_of_a_year_advances_the_clock() -> None:
    async def patient(ctx: Context) -> datetime:
        await ctx.sleep(days=365)
        return ctx.now()

    show = await simulate(patient, now=NEW_YEAR)

    assert show.slept == timedelta(days=365)
    assert show.result == show.ended_at == NEW_YEAR + timedelta(days=365)


async def test_simulate_sleep_until_past_time_takes_no_time() -> None:
    async def punctual(ctx: Context) -> None:
        await ctx.sleep_until(NEW_YEAR + timedelta(hours=6))
        await ctx.sleep(0)
        await ctx.sleep_until(NEW_YEAR)

    assert (await simulate(punctual, now=NEW_YEAR)).slept == timedelta(hours=6)


async def test_simulate_branches_sleep_concurrently() -> None:
    async def both(ctx: Context) -> None:
        async def nap(days: int) -> None:
            await ctx.sleep(days=days)
            await ctx.step(f"after {days}", note, str(days))

        await asyncio.gather(nap(5), nap(2), ctx.step("at once", note, "0"))

    show = await simulate(both)

    assert done == ["0", "2", "5"]
    assert round(show.slept / timedelta(days=1), 6) == 5


async def test_simulate_uuid_and_random_repeat_in_every_simulation() -> None:
    async def chancy(ctx: Context) -> list[str]:
        first = [str(ctx.uuid()), str(ctx.uuid()), str(ctx.random())]
        await ctx.sleep(1)
        return first

    shows = [await simulate(chancy) for _ in range(2)]

    assert shows[0].result == shows[1].result
    assert len(set(shows[0].result)) == 3


# Signals


async def test_simulate_signal_arrives_at_start_after_delay_or_at_time() -> None:
    before = await simulate(onboard, user=1, signals={"survey": {"score": 9}})
    later = await simulate(onboard, user=1, signals={"survey": (timedelta(days=5), {"score": 3})})
    then = await simulate(
        onboard,
        user=1,
        now=NEW_YEAR,
        signals={"survey": (datetime(2027, 1, 9, tzinfo=UTC), {"score": 1})},
    )

    assert (before.result, before.slept.days) == ("score 9", 3)
    assert (later.result, later.slept.days) == ("score 3", 5)
    assert (then.result, then.slept.days) == ("score 1", 8)


async def test_simulate_wait_signal_times_out_by_the_simulated_clock() -> None:
    late = {"survey": (timedelta(days=11), {"score": 9})}

    show = await simulate(onboard, user=1, signals=late)

    assert (show.result, show.slept) == ("silent", timedelta(days=10))


async def test_simulate_endless_wait_ends_sleeping_with_awaited_signal() -> None:
    async def forever(ctx: Context) -> None:
        await ctx.wait_signal("go", str)

    show = await simulate(forever)

    assert (show.state, show.awaited_signals) == ("sleeping", ["go"])
    with pytest.raises(RotaError, match="waits for signal 'go', which is not sent"):
        _ = show.result


async def test_simulate_signal_timeout_without_default_fails_the_run() -> None:
    async def strict(ctx: Context) -> None:
        await ctx.wait_signal("go", str, timeout=60)

    show = await simulate(strict)

    assert isinstance(show.error, SignalTimeout)
    assert show.slept == timedelta(minutes=1)


# Failures


@app.task
async def pay(ctx: Context) -> str:
    patient = ctx.options(retry=Retry(max_attempts=3, delay=10, backoff=1))
    return await patient.step("charge", note, "charged")


async def test_simulate_fails_makes_steps_fail_and_retry() -> None:
    show = await simulate(pay, fails={"charge": [TimeoutError, ConnectionError("no line")]})

    assert show.result == "charged"
    assert show.executions == {"charge": 3}
    assert done == ["charged"]
    assert show.slept == timedelta(seconds=20)  # exact: a simulation has no jitter


async def test_simulate_step_that_always_fails_fails_run_after_all_attempts() -> None:
    @app.task(retry=Retry(max_attempts=3, delay=60, backoff=2))
    async def brittle(ctx: Context) -> str:
        return await ctx.step("charge", note, "charged")

    show = await simulate(brittle, fails={"charge": ConnectionError("no line")})

    assert (show.state, show.attempts, show.executions, show.steps) == (
        "failed",
        3,
        {"charge": 3},
        [],
    )
    with pytest.raises(StepFailed, match="no line") as caught:
        _ = show.result
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert show.slept == timedelta(seconds=60 + 120)


async def test_simulate_fails_with_unreached_step_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"never reached step 'chrage'.*it ran 'charge'"):
        await simulate(pay, fails={"chrage": TimeoutError})


# Stubs


async def test_simulate_stub_result_is_decoded_by_hint_of_real_step() -> None:
    async def price(of: str) -> datetime:
        raise AssertionError("the real one")

    async def shop(ctx: Context) -> list[int]:
        first = await ctx.step("price", price, "a")
        return [first.year, (await ctx.step("price", price, of="b")).year]

    seen: list[str] = []

    def fake(of: str):  # type: ignore[no-untyped-def]
        seen.append(of)
        return "2027-01-01T00:00:00Z"

    async def awaited(of: str) -> Any:
        return fake(of)

    assert (await simulate(shop, steps={"price": fake})).result == [2027, 2027]
    assert (await simulate(shop, steps={"price": awaited})).result == [2027, 2027]
    assert (await simulate(shop, steps={"price": NEW_YEAR})).result == [2027, 2027]
    assert seen == ["a", "b", "a", "b"]


async def test_simulate_transaction_is_refused_with_remedy() -> None:
    async def book(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    async def booking(ctx: Context) -> None:
        await ctx.step("book", book, ctx)

    show = await simulate(booking)

    with pytest.raises(StepFailed, match=r"step 'book' a stand-in \(steps=…\), or test it in one"):
        _ = show.result
    assert (await simulate(booking, steps={"book": None})).state == "succeeded"


# Arguments of calls


async def test_simulate_unknown_argument_is_refused() -> None:
    with pytest.raises(ArgumentError, match="takes no argument 'usr'"):
        await simulate(onboard, usr=1)


async def test_simulate_bound_task_takes_arguments_named_as_options() -> None:
    @app.task(name="noting")
    async def noting(steps: int, signals: list[str]) -> int:
        return steps + len(signals)

    show = await simulate(noting.bind(steps=3, signals=["a"]), now=NEW_YEAR)

    assert (show.result, show.started_at) == (4, NEW_YEAR)


async def test_simulate_non_task_or_naive_time_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"not simulate\(task\(…\)\)"):
        await simulate(3)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="zone"):
        await simulate(pay, now=datetime(2027, 1, 1))  # noqa: DTZ001


# Sync functions and sync tests


def plain(ctx: Context, n: int) -> int:
    first = ctx.sync.step("one", lambda: n + 1)
    ctx.sync.sleep(days=2)
    factor: int = ctx.sync.wait_signal("factor", int)
    return ctx.sync.step("two", lambda: first * factor)


def test_simulate_sync_runs_plain_function_with_crash() -> None:
    show = simulate.sync(plain, n=4, signals={"factor": 10}, crash_after=1)

    assert (show.result, show.steps, show.crashes) == (50, ["one", "two"], 1)
    assert show.slept == timedelta(days=2)
    show.assert_once()


async def test_simulate_sync_in_running_loop_runs_async_function() -> None:
    assert simulate.sync(onboard, user=1).result == "silent"


def test_simulate_fixture_needs_no_database(rota_simulate: Simulate) -> None:
    assert rota_simulate.sync(onboard, user=1).result == "silent"


# Other features


async def test_simulate_keeps_logs_and_progress() -> None:
    async def chatty(ctx: Context) -> None:
        ctx.log("before")
        await ctx.sleep(days=1)
        ctx.log("after")
        ctx.progress(1, 2, "half")

    show = await simulate(chatty)

    assert show.logs == ["before", "after"]
    assert show.progress == (1.0, 2.0, "half")


async def test_simulate_restart_is_followed_up_to_restarts_limit() -> None:
    async def endless(ctx: Context, n: int = 0) -> None:
        await ctx.step("turn", note, f"turn {n}")
        await ctx.sleep(days=1)
        await ctx.restart(n=n + 1)

    once = await simulate(endless)
    thrice = await simulate(endless, restarts=2)

    assert (once.state, once.restarted_with) == ("restarted", {"n": 1})
    assert thrice.restarted_with == {"n": 3}
    assert done == ["turn 0", "turn 0", "turn 1", "turn 2"]
    with pytest.raises(RotaError, match="it restarted with"):
        _ = once.result


async def test_simulate_restart_does_not_reuse_received_signals() -> None:
    async def listening(ctx: Context, n: int = 0) -> None:
        await ctx.wait_signal("go", str, timeout=60, default=None)
        await ctx.restart(n=n + 1)

    show = await simulate(listening, signals={"go": "now"}, restarts=2)

    assert show.slept == timedelta(seconds=120)  # only the first wait returned at once


async def test_simulate_endless_function_stops_at_until() -> None:
    async def daily(ctx: Context) -> None:
        while True:
            await ctx.step("round", note, "round")
            await ctx.sleep(days=1)

    show = await simulate(daily, until=timedelta(days=30), now=NEW_YEAR)

    assert (show.state, len(show.steps)) == ("sleeping", 31)
    assert show.ended_at == NEW_YEAR + timedelta(days=30)
    with pytest.raises(
        RotaError, match=r"sleeps until 2027-02-01 00:00:00, which is beyond until="
    ):
        _ = show.result


async def test_simulate_history_continues_with_fitting_code_only() -> None:
    async def before(ctx: Context, user: int) -> str:
        await ctx.step("account", note, f"account {user}")
        await ctx.sleep(days=3)
        return "old"

    async def fits(ctx: Context, user: int) -> str:
        await ctx.step("account", note, f"account {user}")
        if ctx.version("greet"):
            await ctx.step("greet", note, "hello")
        await ctx.sleep(days=3)
        await ctx.step("ask", note, f"how are you, {user}")
        return "new"

    async def does_not(ctx: Context, user: int) -> str:
        await ctx.step("account", note, f"account {user}")
        await ctx.step("greet", note, "hello")
        return "new"

    half = await simulate(before, user=7, until=timedelta(days=1))

    assert (await simulate(fits, history=half)).result == "new"
    assert done == ["account 7", "how are you, 7"]
    assert (await simulate(fits, user=7)).steps == ["account", "greet", "ask"]
    show = await simulate(does_not, history=half)
    assert show.state == "quarantined"
    with pytest.raises(
        ReplayMismatch, match="reached step 'greet', but its journal has sleep here"
    ):
        _ = show.result


async def test_simulated_result_str_lists_all_journal_entries() -> None:
    show = await simulate(onboard, user=42, signals={"survey": (timedelta(days=5), {"score": 9})})

    assert str(show).splitlines() == [
        "       0:00:00  step 'account'           'account 42'",
        "       0:00:00  sleep                    for 3 d",
        "           5 d  wait 'survey'            {'score': 9}",
        "           5 d  step 'thank'             'thanks'",
        '           5 d  returned "score 9"',
    ]
    assert repr(show) == "<SimulatedResult onboard succeeded, 2 steps, 5 d>"
