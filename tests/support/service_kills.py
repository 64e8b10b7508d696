"""Instances of a monitor service, and checks of its iterations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.service_instances import (
    ServiceInstances,
    misnumbered,
    now,
    overlaps,
    unrecorded,
)

TABLE = "create table effects (service text, iteration bigint, term bigint, pid int)"


@pytest.fixture
def monitors(tmp_path: Path, rota_dsn: str) -> Iterator[Any]:
    made: list[ServiceInstances] = []

    def make(**order: Any) -> ServiceInstances:
        with psycopg.connect(rota_dsn, autocommit=True) as connection:
            connection.execute(TABLE)
        made.append(ServiceInstances(tmp_path, rota_dsn, **order))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def until(condition: Any, within: float = 60) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.02)


async def read_records(dsn: str) -> tuple[dict[tuple[str, int], Any], list[Any]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        rows = await connection.execute(
            "select service, number, pid, term, outcome from rota.iterations"
        )
        recorded = {(row[0], row[1]): row[2:] for row in await rows.fetchall()}
        effects = await connection.execute("select service, iteration, term, pid from effects")
        return recorded, await effects.fetchall()


async def find_faults(fleet: ServiceInstances, dsn: str) -> list[str]:
    iterations = fleet.look()
    died = {each.pid: each.died for each in fleet.instances if each.died is not None}
    recorded, effects = await read_records(dsn)
    return [
        *overlaps(iterations, died, now()),
        *misnumbered(iterations),
        *unrecorded(iterations, recorded, effects, died),
    ]
