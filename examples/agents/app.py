"""What is done in the background: an agent that can be paused, and the actions that users schedule.

Each writes what it did in the transaction with which its step or its job is done: it is there once, whoever
dies when.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from rota import Context, Requeue, Retry, Rota

from .model import PACE, model

app = Rota()  # the database that ROTA_DATABASE_URL names
again = Retry(max_attempts=5, delay=1 * PACE)


# The executor


@app.task(queue="agents", retry=again)
async def agent(ctx: Context, goal: str, turns: int = 5) -> list[str]:
    """Each turn is a step: kept before the next begins, and not done again after a crash or a deploy.
    Between turns it looks whether somebody wants it to pause, and holds nothing until it is resumed."""
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


@app.action("digest", retry=again)
async def digest(ctx: Context, topics: list[str]) -> int:
    """Several answers, each asked for once, then all of it at once."""
    found = [await ctx.step(f"ask {topic}", model.ask, topic) for topic in topics]
    await ctx.step("write", send, ctx, f"digest of {', '.join(topics)}")
    return len(found)


async def send(ctx: Context, what: str) -> None:
    async with ctx.transaction() as connection:
        await write(connection, ctx, what)


@app.action("agent")
async def set_out(ctx: Context, goal: str, turns: int = 5) -> int:
    """An agent of its own for each tick. Done again, it finds by the key the one that it has started."""
    run = await agent.options(key=f"agent {ctx.job_id}").start(goal, turns)
    return run.id


@app.action("sweep", retry=again)
async def sweep(ctx: Context, items: int = 50) -> int:
    """Code without steps keeps how far it is, and leaves when its worker does: the next goes on there."""
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


async def write(connection: Any, ctx: Context, what: str) -> None:
    await connection.execute(
        "insert into deeds (run, what, planned, pid) values (%s, %s, %s, %s)",
        (ctx.run_id, what, ctx.scheduled_for, os.getpid()),
    )
