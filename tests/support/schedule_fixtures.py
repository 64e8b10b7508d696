"""An app whose task and flow record their input and scheduled time."""

from __future__ import annotations

from datetime import datetime

import pytest

from rota import Context, Rota
from rota.testing import Harness

Seen = list[tuple[str, datetime | None, bool]]


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def app(rota_harness: Harness, seen: Seen) -> Rota:
    app = rota_harness.app

    @app.task
    async def report(ctx: Context, day: str = "today") -> str:
        seen.append((day, ctx.scheduled_for, ctx.backfilled))
        return day

    flow = app.flow("etl")

    @flow.task
    async def extract(ctx: Context, day: str) -> None:
        seen.append((day, ctx.scheduled_for, ctx.backfilled))

    @flow.task(after=[extract])
    async def load(ctx: Context, day: str) -> None:
        seen.append((day, ctx.scheduled_for, ctx.backfilled))

    return app
