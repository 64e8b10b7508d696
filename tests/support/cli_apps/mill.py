"""Flows for the tests of the command line; `wrong` has one that cannot work."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
from pathlib import Path

from rota import Context, Retry, Rota

app = Rota()
wrong = Rota()

etl = app.flow("etl")


@etl.task
async def extract(day: str) -> list[str]:
    return [f"{day}-1", f"{day}-2"]


@etl.task(retry=Retry(max_attempts=2, delay=0))
async def clean(extract: list[str], broken: bool = False) -> int:
    if broken:
        raise ValueError("cannot read [bold]it[/bold] \x1b[31m")
    return len(extract)


@etl.task(queue="search")
async def index(extract: list[str]) -> int:
    return sum(map(len, extract))


@etl.task(after=[index])
async def report(day: str, clean: int) -> str:
    return f"{day}: {clean}"


@etl.task(after=["report"], skip_if=lambda clean: clean > 0)
async def complain(clean: int) -> None:
    pass


@etl.on_failure
async def alert(ctx: Context, day: str) -> int:
    return len(await ctx.failures())


@app.task
async def half(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is below nothing")
    return number // 2


gallery = app.flow("gallery")


@gallery.task
async def halves(ctx: Context, numbers: list[int]) -> list[int]:
    return await ctx.map([half.bind(number) for number in numbers])


@gallery.task
async def inner(ctx: Context, halves: list[int]) -> None:
    await ctx.run(etl.bind(day="monday"))


gate = app.flow("gate")


@gate.task
async def hold(file: str) -> None:
    """Run until the file exists; create file.began first."""
    await asyncio.to_thread(Path(f"{file}.began").touch)
    while not await asyncio.to_thread(Path(file).exists):
        await asyncio.sleep(0.01)


@gate.task(after=[hold])
async def through() -> None:
    pass


lonely = app.flow("lonely")


@lonely.task(queue="nobody")
async def first(n: int = 1) -> int:
    return n


@lonely.task
async def second(first: int) -> int:
    return first + 1


fan = app.flow("fan")


@fan.task
async def split() -> int:
    return 1


for number in range(40):
    fan.task(name=f"part{number}", after=["split"])(lambda: None)


@fan.task(after=[f"part{number}" for number in range(40)], when="all_done")
async def merge(split: int | None) -> None:
    pass


fine = wrong.flow("fine")


@fine.task
async def alone() -> None:
    pass


circle = wrong.flow("circle")


@circle.task
async def one(two: int) -> int:
    return two


@circle.task
async def two(one: int) -> int:
    return one


nothing = wrong.flow("nothing")

unread = wrong.flow("unread")


@unread.task
async def takes_either(what: str | bytes) -> None:
    """Take a union that JSON cannot distinguish: it has one text type."""
