"""Flows whose jobs finish in several processes at the same moment."""

from __future__ import annotations

import pytest
from psycopg import AsyncConnection

from rota import Rota
from support.fleet import Fleet
from support.places import PROGRAMS
from support.programs.flow_app import define

WORKERS = 8


# Keeps every transaction that records outcomes open a little longer.
SLOW_COMMIT = """
create function public.linger() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.002); return null; end $$;
create constraint trigger linger after insert on rota.outcomes
    deferrable initially deferred for each row execute function public.linger()
"""

LOCK = "for update offset 0"


@pytest.fixture
def flow_fleet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Fleet that runs the flow of flow_app.py."""
    monkeypatch.setattr("support.fleet.APP", PROGRAMS / "flow_app.py")
    return fleet


async def start_runs(dsn: str, many: int) -> None:
    async with Rota(dsn) as app:
        flow = define(app, lambda *_: None)
        await app.start_many([flow.bind(n=n) for n in range(many)])


async def prepare(dsn: str, *, mutant: bool = False) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(SLOW_COMMIT)
        if mutant:
            cursor = await connection.execute(
                "select pg_get_functiondef('rota.release_successors'::regproc)"
            )
            row = await cursor.fetchone()
            assert row is not None
            assert LOCK in row[0], "release_successors has changed: the mutant must be updated"
            await connection.execute(row[0].replace(LOCK, "offset 0"))
