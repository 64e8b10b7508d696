"""API for scheduling actions and for starting and pausing agents: `rota serve examples.agents.api:api`.

Any number of instances may serve it. An accepted request is durable.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import psycopg
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from rota.errors import ArgumentError, RunNotFound, ScheduleNotFound
from rota.web.health import health

from .app import agent, app
from .model import model


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open the model before the first job begins, and close it after the last has ended."""
    await model.open()
    try:
        async with app.lifespan(api) as state:
            print("ready", flush=True)
            yield state
        print("jobs have ended", flush=True)
    finally:
        await model.close()


api = FastAPI(title="Agents", lifespan=lifespan)


# Scheduled actions


class NewAction(BaseModel):
    name: str
    type: Literal["remind", "digest", "agent", "sweep"]
    config: dict[str, Any] = {}
    every: float | None = Field(None, gt=0, description="seconds")
    cron: str | None = None
    tz: str = "UTC"


@api.post("/actions", status_code=201)
async def create(new: NewAction) -> dict[str, str]:
    await app.schedules.create(
        new.name,
        action=new.type,
        config=new.config,  # validated against the action's handler
        every=new.every,
        cron=new.cron,
        tz=new.tz,
        overlap="allow",
        catch_up="all",  # ticks missed while no worker ran are started later
    )
    return {"name": new.name}


@api.get("/actions")
async def actions() -> list[dict[str, Any]]:
    return [
        {"name": each.name, "action": each.target, "when": each.when, "state": each.state}
        for each in await app.schedules.list()
    ]


@api.get("/actions/{name}")
async def action(name: str, ticks: int = 20) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(await app.schedules.get(name))
    return {**found, "ticks": msgspec.to_builtins(await app.schedules.ticks(name, ticks))}


@api.post("/actions/{name}/{verb}", status_code=202)
async def change(name: str, verb: Literal["pause", "resume", "trigger"]) -> dict[str, Any]:
    if verb == "trigger":
        return {"run": (await app.schedules.trigger(name)).id}
    await (app.schedules.pause(name) if verb == "pause" else app.schedules.resume(name))
    return {"name": name}


@api.delete("/actions/{name}", status_code=204)
async def delete(name: str) -> None:
    await app.schedules.delete(name)


# Agents


class NewAgent(BaseModel):
    goal: str
    turns: int = Field(5, ge=1, le=100)


@api.post("/agents", status_code=202)
async def start(new: NewAgent) -> dict[str, int]:
    return {"run": (await agent.start(new.goal, new.turns)).id}


@api.get("/agents/{run}")
async def show(run: int) -> dict[str, Any]:
    return {"run": run, "state": await app.run(run).status()}


@api.post("/agents/{run}/pause", status_code=202)
async def pause(run: int) -> dict[str, int]:
    """Pause the agent before its next turn. Has no effect if the agent is already paused."""
    async with await psycopg.AsyncConnection.connect(os.environ["ROTA_DATABASE_URL"]) as connection:
        found = await connection.execute(
            "insert into steering (run, pauses, resumes) values (%s, 1, 0)"
            " on conflict (run) do update set pauses = steering.resumes + 1 returning pauses",
            (run,),
        )
        [pauses] = await found.fetchone() or [0]
    return {"run": run, "pauses": pauses}


@api.post("/agents/{run}/resume", status_code=202)
async def resume(run: int) -> dict[str, int]:
    """Resume the agent. The row and the signal are one commit."""
    async with await psycopg.AsyncConnection.connect(os.environ["ROTA_DATABASE_URL"]) as connection:
        found = await connection.execute(
            "update steering set resumes = pauses where run = %s and pauses > resumes returning pauses",
            (run,),
        )
        row = await found.fetchone()
        if row is None:
            raise HTTPException(409, f"agent {run} is not paused")
        await connection.execute("select rota.signal(%s, %s, 'true')", (run, f"resume {row[0]}"))
    return {"run": run, "resumes": row[0]}


# Errors and health


@api.exception_handler(ScheduleNotFound)
@api.exception_handler(RunNotFound)
async def missing(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 404)


@api.exception_handler(ArgumentError)
async def refused(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)


api.mount("/", health(app))  # /health/ready, /metrics; last, because "/" matches every path
