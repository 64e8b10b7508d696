"""The same jobs beside an API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from lengthy import app, lengthy, pool  # type: ignore[import-not-found]


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[dict[str, Any]]:
    async with app.lifespan(api) as state:
        yield state
    pool.close()


api = FastAPI(lifespan=lifespan)


@api.post("/lengthy", status_code=202)
async def start_lengthy(seconds: float, notes: str) -> dict[str, int]:
    return {"run": (await lengthy.start(seconds=seconds, notes=notes)).id}
