"""Set-up of the `rota check-deploy` tests: runs in flight, and new code for them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from rota import Context
from rota import Rota as App
from rota.testing import run_until_idle
from support.terminal import CommandResult

Deploy = Callable[[str], str]

HEAD = """
from datetime import timedelta
from pathlib import Path
from rota import Context, Rota
app = Rota()
async def note(what: str) -> str:
    Path(__file__).with_name("touched").write_text(what)
    return what
"""


def make_deploy(where: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Return a function that writes new code to a module and returns the name of its app."""
    monkeypatch.syspath_prepend(str(where))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(code: str) -> str:
        (where / "new.py").write_text(HEAD + dedent(code))
        sys.modules.pop("new", None)
        return "new:app"

    return write


def run_until_suspended(dsn: str, start: Callable[[App], Awaitable[Any]]) -> Any:
    """Register tasks with an app, start runs, and run them until they sleep."""

    async def running() -> Any:
        async with App(dsn, poll_interval=0.1) as app:
            started = await start(app)
            await run_until_idle(app)
            return started

    return asyncio.run(running())


def report_of(done: CommandResult) -> Any:
    """Return the JSON report; the exit code is not checked."""
    return json.loads(done.out)


async def note(what: str) -> str:
    return what


async def start_onboarding(app: App) -> int:
    """Start a run that reaches a step and a sleep."""

    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        await ctx.step("account", note, "account")
        await ctx.sleep(days=7)
        await ctx.step("ask", note, "ask")

    return (await onboard.start(user=42)).id


OTHER = """
@app.task
async def onboard(ctx: Context, user: int) -> None:
    await ctx.step("account", note, "account")
    await ctx.step("greet", note, "greet")
    await ctx.sleep(days=7)
    await ctx.step("ask", note, "ask")
"""
"""Code with a step inserted between two existing ones."""
