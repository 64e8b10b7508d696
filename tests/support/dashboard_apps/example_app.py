"""App with an example of everything that a page can show. A `gate` job waits for a test's signal."""

from __future__ import annotations

import asyncio
from typing import Any

from rota import Context, Retry, Rota

app = Rota(poll_interval=0.1)


@app.task
async def greet(name: str, times: int = 1) -> str:
    return f"hello {name}" * times


@app.task
async def echo(value: Any = None) -> Any:
    return value


@app.task
async def stumble(ctx: Context, word: str = "a stone") -> None:
    ctx.log(f"about to stumble over {word}")
    await ctx.step("look", _look, word)
    raise ValueError(f"stumbled over {word}")


async def _look(word: str) -> str:
    return word


@app.task(retry=Retry(max_attempts=3, delay=0.05))
async def flaky(ctx: Context) -> str:
    if ctx.attempt < 3:
        raise ConnectionError("somebody else's service is down")
    return "at last"


@app.task(retry=Retry(max_attempts=1))
async def slip(on: str = "ice") -> None:
    """Fail permanently at the first attempt."""
    raise RuntimeError(f"slipped on {on}")


@app.task
async def gate(ctx: Context, steps: int = 2) -> Any:
    """Run steps with progress, then wait for the signal `open`."""
    for number in range(steps):
        ctx.progress(number, steps, f"step {number}")
        await ctx.step(f"part {number}", _look, f"part {number}")
    return await ctx.wait_signal("open", Any)


@app.task
async def hold(ctx: Context, seconds: float = 60.0) -> None:
    """Run for `seconds`, and end at once when it is cancelled."""
    await asyncio.sleep(seconds)


@app.task(queue="nobody")
async def unserved() -> None: ...


@app.task
async def fetch(part: int) -> int:
    await asyncio.sleep(0.05)
    return part


etl = app.flow("etl")


@etl.task
async def extract(day: str, parts: int = 3) -> int:
    return parts


@etl.task
async def transform(ctx: Context, extract: int) -> list[int]:
    return await ctx.map([fetch.bind(part) for part in range(extract)])


@etl.task
async def approve(ctx: Context, transform: list[int]) -> bool:
    return await ctx.wait_signal("approval", bool)


@etl.task
async def check(ctx: Context, transform: list[int], day: str) -> str:
    if day == "broken":
        raise RuntimeError("the day is broken")
    return "checked"


@etl.task
async def load(approve: bool, check: str) -> str:
    return "loaded"


@app.service("watch", every=30)
async def watch() -> None: ...


@app.service("trouble", every=30)
async def trouble() -> None:
    raise ValueError("a planted s3cret")


crowd = app.flow("crowd")


@crowd.task
async def split(many: int = 0) -> int:
    return many


async def part(split: int) -> int:
    return split


parts = [crowd.task(part, name=f"part_{number}") for number in range(30)]


@crowd.task(after=parts)
async def merge() -> None: ...
