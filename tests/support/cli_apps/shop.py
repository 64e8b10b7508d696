"""An app for the tests of the command line."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from rota import Context, Retry, Rota

app = Rota()
empty = Rota()
port = 80


@app.task(queue="images", retry=Retry(max_attempts=2, delay=0))
async def resize(path: str, width: int = 100) -> str:
    if path == "broken":
        raise ValueError("cannot read [bold]broken[/bold] \x1b[31m")
    return f"{path} at {width}"


@app.task
async def echo(value: Any) -> Any:
    return value


@app.task
async def wait_for(file: str) -> None:
    """Run until the file exists; create file.began first."""
    await asyncio.to_thread(Path(f"{file}.began").touch)
    while not await asyncio.to_thread(Path(file).exists):
        await asyncio.sleep(0.01)


@app.task(retry=Retry(max_attempts=5, delay=3600))
async def tomorrow() -> None:
    raise RuntimeError("not today")


@app.task
async def which_process(ctx: Context) -> int:
    return os.getpid()


@app.task(max_crashes=1)
async def perilous(file: str) -> None:
    """Kill the worker until the file exists."""
    if not await asyncio.to_thread(Path(file).exists):
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(isolation="process")
def apart(file: str) -> None:
    """Run in a separate process, write its pid to the file, and never end."""
    Path(file).write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)
