"""Database as after a busy week, generated in a minute by the server itself from series of numbers.

Ids of runs are ten apart, so that the jobs of a flow have the ids next to it. All rows derive from these
ids: two databases of one size are identical.

    python -m tests.support.large_database DSN        fills an empty database with the large one
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg

from rota.model.settings import Settings
from rota.store.database import Database
from rota.store.migrate import migrate


@dataclass(frozen=True, slots=True)
class Size:
    """Number of rows of each kind. One of fifty runs is a run of a flow with five jobs."""

    runs: int
    """Finished runs."""
    queued: int
    asleep: int
    open_flows: int
    nodes: int
    """Jobs of the one wide run."""
    workers: int
    gone: int
    held: int
    """Jobs that each worker holds."""
    schedules: int
    ticks: int
    """Ticks of each schedule."""
    days: int
    """Days with counts by the minute."""
    notes: int
    """Audit rows, cleared alerts, and the log lines and steps of one job."""


LARGE = Size(
    runs=1_000_000,
    queued=100_000,
    asleep=10_000,
    open_flows=1_000,
    nodes=2_000,
    workers=200,
    gone=2_000,
    held=10,
    schedules=500,
    ticks=300,
    days=7,
    notes=50_000,
)

SMALL = Size(
    runs=2_000,
    queued=500,
    asleep=50,
    open_flows=10,
    nodes=60,
    workers=5,
    gone=10,
    held=4,
    schedules=10,
    ticks=10,
    days=1,
    notes=200,
)

PARTS = ("names", "finished", "flows", "wide", "open", "story", "fleet", "counts")
"""Files of statements, in the order of execution."""


def fill(dsn: str, size: Size, say: Callable[[str], None] = lambda line: None) -> None:
    """Create the schema in an empty database and fill it."""

    async def prepare() -> None:
        database = Database(dsn, Settings())
        try:
            await migrate(database)
        finally:
            await database.close()

    # In a thread, because Playwright's sync API keeps an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, prepare()).result()
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("set synchronous_commit = off")
        connection.execute("set work_mem = '64MB'")
        for part in PARTS:
            began = time.monotonic()
            text = Path(__file__).with_name("week").joinpath(f"{part}.sql").read_bytes()
            connection.execute(text, asdict(size))
            say(f"{part}: {time.monotonic() - began:.1f} s")
        connection.execute("select setval('rota.ids', spots.aside + 1000) from spots")
        connection.execute("vacuum (analyze)")


if __name__ == "__main__":
    fill(sys.argv[1], LARGE, print)
