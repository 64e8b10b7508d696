"""The query by which KEDA scales the workers, run on a database."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from rota import Rota
from support.keda_trigger import trigger


async def test_keda_query_returns_desired_workers(
    rota_app: Rota, db: AsyncConnection[tuple[Any, ...]]
) -> None:
    """The query returns one row with one numeric column."""
    query = trigger("keda")["metadata"]["query"].encode()
    hello = rota_app.task(_hello)

    [idle] = await (await db.execute(query)).fetchall()
    await hello.start()
    [busy] = await (await db.execute(query)).fetchall()

    assert idle == (0,)
    assert busy == (1,)


async def _hello() -> None: ...
