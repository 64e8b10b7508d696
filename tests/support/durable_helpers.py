"""Helpers for durable jobs: journal entries, waiting for sleep, loss of the worker."""

from __future__ import annotations

from typing import Any

from rota import Rota, Run
from rota.model.events import JobSuspended
from rota.testing import Harness
from support.queries import fetch, until


async def steps(dsn: str, run: Run[Any] | int) -> list[str]:
    """Return a job's journal entries in order: `step charge 2`, with an `…` if the entry is open."""
    job = run if isinstance(run, int) else run.id
    rows = await fetch(
        dsn,
        f"select kind::text, name, number, open from rota.steps where job = {job} order by position",
    )
    return [
        f"{kind} {name}{'' if number == 1 else f' {number}'}{' …' if is_open else ''}"
        for kind, name, number, is_open in rows
    ]


async def is_sleeping(run: Run[Any]) -> bool:
    return await run.status() == "sleeping"


async def wait_until_sleeping(*runs: Run[Any]) -> None:
    """Wait until the runs sleep and no worker holds them."""
    for run in runs:
        await until(lambda run=run: is_sleeping(run))


async def lose_workers(app: Rota) -> None:
    """Declare every worker dead and return its jobs to the queue."""
    client = await app.open()
    async with client.database.connection() as connection:
        await connection.execute("update rota.workers set state = 'dead'")
        await connection.execute("select rota.reap(id) from rota.claims")


async def wait_for_suspensions(harness: Harness, run: Run[Any], times: int) -> None:
    """Wait until the job was suspended `times` times."""

    async def so_often() -> bool:
        left = [each for each in harness.events if isinstance(each, JobSuspended)]
        return len([each for each in left if each.job == run.id]) >= times

    await until(so_often)


def note(seen: list[Any], what: Any, value: Any = None) -> Any:
    """Append `what` to `seen` and return `value`: a step that records its execution."""
    seen.append(what)
    return value
