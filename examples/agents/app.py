"""Background jobs: an agent that can be paused, and the actions that users schedule.

Each job writes its result in the transaction that completes its step or the job. So the result exists once,
even if a worker dies.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from rota import Context, Requeue, Retry, Rota

from .model import PACE, model

app = Rota()  # uses the database in ROTA_DATABASE_URL
retry_policy = Retry(max_attempts=5, delay=1 * PACE)


# Agent


@app.task(queue="agents", retry=retry_policy)
async def agent(ctx: Context, goal: str, turns: int = 5) -> list[str]:
    """Run turns as steps: each is stored before the next begins, and not repeated after a crash or a
    deploy. Between turns the agent checks for a pause. A paused agent occupies no worker.
    """
    thoughts: list[str] = []
    paused = 0
    for turn in range(1, turns + 1):
        if (asked := await ctx.step("pause?", times_paused, ctx)) > paused:
            ctx.progress(turn - 1, turns, "paused")
            await ctx.wait_signal(f"resume {asked}")
            paused = asked
        thoughts.append(await ctx.step("think", think, ctx, goal, turn))
        ctx.progress(turn, turns, thoughts[-1])
    return thoughts


async def times_paused(ctx: Context) -> int:
    async with ctx.transaction() as connection:
        found = await connection.execute(
            "select pauses from steering where run = %s", (ctx.run_id,)
        )
        [pauses] = await found.fetchone() or [0]
    return int(pauses)


async def think(ctx: Context, goal: str, turn: int) -> str:
    thought = await model.ask(f"{goal}, turn {turn}")
    async with ctx.transaction() as connection:
        await write(connection, ctx, f"thought {turn} of {goal}")
    return thought


# Types of actions


@app.action("remind")
async def remind(ctx: Context, text: str) -> None:
    async with ctx.transaction() as connection:
        await write(connection, ctx, f"reminded of {text}")
        ctx.complete()


@app.action("digest", retry=retry_policy)
async def digest(ctx: Context, topics: list[str]) -> int:
    """Ask for several answers, each once, then write them together."""
    found = [await ctx.step(f"ask {topic}", model.ask, topic) for topic in topics]
    await ctx.step("write", send, ctx, f"digest of {', '.join(topics)}")
    return len(found)


async def send(ctx: Context, content: str) -> None:
    async with ctx.transaction() as connection:
        await write(connection, ctx, content)


@app.action("agent")
async def start_agent(ctx: Context, goal: str, turns: int = 5) -> int:
    """Start an agent for each tick. A retry finds the run that was already started, by its key."""
    run = await agent.options(key=f"agent {ctx.job_id}").start(goal, turns)
    return run.id


@app.action("sweep", retry=retry_policy)
async def sweep(ctx: Context, items: int = 50) -> int:
    """Store a checkpoint instead of steps, and stop when the worker drains: the next worker resumes from
    there.
    """
    done: int = ctx.resumed_from or 0
    while done < items:
        await asyncio.sleep(0.1 * PACE)
        done += 1
        if ctx.draining or done % 10 == 0:
            await ctx.checkpoint(done)
        if ctx.draining:
            raise Requeue
    async with ctx.transaction() as connection:
        await write(connection, ctx, f"swept {done}")
        ctx.complete(done)
    return done


async def write(connection: Any, ctx: Context, content: str) -> None:
    await connection.execute(
        "insert into results (run, content, planned, pid) values (%s, %s, %s, %s)",
        (ctx.run_id, content, ctx.scheduled_for, os.getpid()),
    )
