"""Durable functions for the tests of the command line."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota import Context, Retry, Rota

app = Rota()


async def give(value: Any) -> Any:
    return value


async def decline(number: int) -> int:
    raise ValueError(f"card [bold]declined[/bold] \x1b[31m {number}")


@app.task
async def onboard(ctx: Context, mail: str, pause: float = 3600) -> str:
    """Reach one journal entry of each kind, then sleep, then wait for a signal."""
    ctx.log("begun\nwith two lines")
    await ctx.step("account", give, {"mail": mail, "filler": "x" * 500})
    ctx.version("fees")
    ctx.now()
    for number in range(2):
        await ctx.step("charge", give, number)
    try:
        await ctx.step("card", decline, 7)
    except Exception as error:
        ctx.log(f"{error}")
    await ctx.step("invoice", give, "sent")
    ctx.progress(2, 4, "a [bold]week\x1b[31m")
    await ctx.sleep(pause)
    confirmed = await ctx.wait_signal("confirmed", timeout=timedelta(days=3), default="never")
    return f"{mail}: {confirmed}"


@app.task
async def answer(ctx: Context, name: str = "answer", timeout: float | None = None) -> Any:
    """Return the payload of the signal."""
    return await ctx.wait_signal(name, timeout=timeout)


@app.task
async def twice(ctx: Context) -> None:
    """Wait in two branches: for a time and for a signal."""
    await asyncio.gather(ctx.sleep(hours=2), ctx.wait_signal("right"))


@app.task
async def stubborn(ctx: Context) -> None:
    await ctx.options(retry=Retry(max_attempts=9, delay=3600)).step("knock", decline, 1)


@app.task
async def count(ctx: Context, steps: int, lines: int = 0) -> None:
    for number in range(steps):
        await ctx.step("one", give, number)
        ctx.progress(number, steps + 1)
    for number in range(lines):
        ctx.log(f"line {number}")


@app.task(retry=Retry(max_attempts=2, delay=0))
async def changing(ctx: Context, file: str) -> str:
    """Reach another step while the file exists, as a changed deploy would."""
    name = "new" if await asyncio.to_thread(Path(file).exists) else "old"
    await ctx.step(name, give, 1)
    if ctx.attempt == 1:
        raise RuntimeError("not at the first go")
    await ctx.wait_signal("go")
    return name


order = app.flow("order")


@order.task
async def reserve(item: str) -> str:
    return item


cool = order.sleep("cool", timedelta(days=30), after=[reserve])
order.wait_signal("approval", type=bool, after=[reserve], timeout=timedelta(days=2))


@order.task(after=[cool])
async def ship(reserve: str, approval: bool) -> str:
    return f"{reserve}: {approval}"
