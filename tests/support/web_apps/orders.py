"""API as users write it: requests start jobs, and a worker runs beside them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from rota import Context, Rota
from rota.asgi import Drain
from rota.web.health import health

app = Rota()
ORDERS = 0


def append_note(number: int) -> None:
    if notes := os.environ.get("NOTES"):
        with Path(notes).open("a") as file:
            file.write(f"{number}\n")


async def wait_for_file(file: Path) -> None:
    await asyncio.to_thread(file.with_suffix(".began").touch)
    while not await asyncio.to_thread(file.exists):
        await asyncio.sleep(0.02)


@app.task
async def note(ctx: Context, number: int) -> None:
    """Insert one row for each completed job, and write one line for each execution of the code."""
    append_note(number)
    async with ctx.transaction() as connection:
        await connection.execute("insert into orders (number) values (%s)", (number,))


@app.task(queue="long")
async def last(file: str) -> None:
    """Run until the file exists."""
    await wait_for_file(Path(file))


api = FastAPI(lifespan=app.lifespan)


@api.post("/orders/{number}", status_code=202)
async def order(number: int) -> dict[str, int]:
    run = await note.start(number)
    return {"run": run.id, "process": os.getpid()}


@api.post("/last", status_code=202)
async def start_last(file: str) -> dict[str, int]:
    return {"run": (await last.start(file)).id}


@api.get("/slow")
async def slow(file: str) -> dict[str, int]:
    """Answer when the file exists."""
    await wait_for_file(Path(file))
    return {"process": os.getpid()}


def block(file: Path) -> dict[str, int]:
    """Block the thread for a minute; it cannot be cancelled."""
    file.with_suffix(".began").touch()
    time.sleep(60)
    return {"process": os.getpid()}


@api.get("/plain")
def plain(file: str) -> dict[str, int]:
    return block(Path(file))


@api.get("/handed-over")
async def handed_over(file: str) -> dict[str, int]:
    return await asyncio.to_thread(block, Path(file))


@api.get("/large")
async def large() -> str:
    """Return more bytes than a socket accepts while the client does not read."""
    return "x" * 50_000_000


api.mount("/", health(app))

drained = Drain(api, app)


@asynccontextmanager
async def waiting_lifespan(api: FastAPI) -> AsyncIterator[dict[str, object]]:
    """Wait for a file before the app starts, and for another one after."""
    await wait_for_file(Path(os.environ["BEFORE"]))
    async with app.lifespan(api) as state:
        await wait_for_file(Path(os.environ["AFTER"]))
        yield state


late = FastAPI(lifespan=waiting_lifespan)
