"""Durable functions as users write them: checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, assert_type
from uuid import UUID

from rota import Context, ReplayMismatch, Retry, Rota, Run, SignalTimeout, StepFailed

app = Rota()


class Receipt: ...


class Survey: ...


async def charge(order: int, *, currency: str = "EUR") -> Receipt:
    raise NotImplementedError


def plain(order: int) -> list[str]:
    raise NotImplementedError


@app.task
async def onboard(ctx: Context, user: int) -> str:
    assert_type(await ctx.step("charge", charge, user), Receipt)
    assert_type(await ctx.step("charge", charge, user, currency="USD"), Receipt)
    assert_type(await ctx.step("plain", plain, user), list[str])
    assert_type(await ctx.step("lambda", lambda: 3), int)
    assert_type(await ctx.step("class", Receipt), Receipt)
    await ctx.step("charge", charge)  # type: ignore[call-overload]
    await ctx.step("charge", charge, "one")  # type: ignore[call-overload]
    await ctx.step("charge", charge, user, colour="red")  # type: ignore[call-arg]
    await ctx.step("charge", charge(user))  # type: ignore[call-overload]

    careful = ctx.options(retry=Retry(max_attempts=5), timeout=timedelta(seconds=10))
    assert_type(await careful.step("charge", charge, user), Receipt)
    await careful.step("plain", plain, "one")  # type: ignore[call-overload]
    ctx.options(attempts=3)  # type: ignore[call-arg]

    @ctx.step("made")
    async def made(n: int) -> Receipt:
        raise NotImplementedError

    @careful.step("simple")
    def simple(n: int) -> list[str]:
        raise NotImplementedError

    as_function: Callable[[int], Awaitable[Receipt]] = made
    assert_type(await as_function(3), Receipt)
    assert_type(await made(3), Receipt)
    assert_type(await simple(3), list[str])
    await made("three")  # type: ignore[arg-type]

    await ctx.sleep(60)
    await ctx.sleep(timedelta(days=7))
    await ctx.sleep(days=7, hours=1)
    await ctx.sleep_until(datetime(2040, 1, 1, tzinfo=UTC))
    await ctx.sleep("tomorrow")  # type: ignore[arg-type]
    await ctx.sleep(weeks=1)  # type: ignore[call-arg]

    assert_type(await ctx.wait_signal("survey", Survey), Survey)
    assert_type(await ctx.wait_signal("survey", Survey, timeout=timedelta(days=1)), Survey)
    assert_type(await ctx.wait_signal("survey", Survey, timeout=60, default=None), Survey | None)
    assert_type(await ctx.wait_signal("survey"), Any)
    await ctx.wait_signal("survey", Survey, within=3)  # type: ignore[call-overload]

    assert_type(ctx.now(), datetime)
    assert_type(ctx.random(), float)
    assert_type(ctx.uuid(), UUID)
    assert_type(ctx.version("fees"), bool)
    ctx.progress(3, 10, "copying")
    ctx.progress(0.5, note="half")
    ctx.log("done")
    return "done"


@app.task
def in_a_thread(ctx: Context, user: int) -> str:
    assert_type(ctx.sync.step("plain", plain, user), list[str])
    assert_type(ctx.sync.options(timeout=3).step("plain", plain, user), list[str])
    ctx.sync.step("plain", plain, "one")  # type: ignore[arg-type]
    ctx.sync.sleep(days=1)
    assert_type(ctx.sync.wait_signal("survey", Survey), Any)
    return "done"


async def restarting(ctx: Context) -> NoReturn:
    await ctx.restart(user=3)


async def failures(ctx: Context) -> None:
    try:
        await ctx.step("charge", charge, 1)
    except StepFailed as error:
        assert_type((error.step, error.kind, error.reason), tuple[str, str, str])
    except SignalTimeout as late:
        assert_type(late, SignalTimeout)
    except ReplayMismatch as changed:
        assert_type((changed.actual, changed.expected), tuple[str, str])


async def signalling() -> None:
    run = await onboard.start(1)
    assert_type(await run.signal("survey", {"grade": 3}), bool)
    assert_type(await app.signal(run.id, "survey"), bool)
    assert_type(await app.fork(run.id, from_step="charge", input={"user": 2}), Run[Any])
