"""Sampler that records, several times a second, long transactions and the number of waiting jobs."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from .evidence import Fault, Sample

LOOK_EVERY = 0.25
STARVED = 0.4
"""Seconds; one sample takes some milliseconds."""
BUSY = 3
"""Runnable processes per core."""

_LONG = """
select extract(epoch from clock_timestamp())::float8, pid, application_name, state,
       extract(epoch from clock_timestamp() - xact_start)::float8, left(query, 200)
  from pg_stat_activity
 where datname = current_database()
   and pid <> pg_backend_pid()
   and backend_type = 'client backend'
   and state <> 'idle'
   and xact_start < clock_timestamp() - interval '0.5 seconds'
"""
_COUNTS = """
select (select count(*) from rota.queued) + (select count(*) from rota.sleeping)
       + (select coalesce(sum(cardinality(jobs)), 0) from rota.claims)
       + (select count(*) from rota.waiting) + (select count(*) from rota.pending_releases),
       (select count(*) from rota.outcomes)
"""


class Sampler:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.samples: list[Sample] = []
        self.open = 0
        self.ended = 0
        self.looks = 0
        self.starved: list[Fault] = []
        """Periods in which a sample took too long or far too many processes were runnable."""

    async def run(self) -> None:
        """Take samples until cancelled. Reconnect while the server is unreachable."""
        while True:
            with suppress(psycopg.Error):
                async with await psycopg.AsyncConnection.connect(
                    self._dsn, autocommit=True, connect_timeout=2, application_name="sampler"
                ) as connection:
                    while True:
                        await self._look(connection)
                        await asyncio.sleep(LOOK_EVERY)
            await asyncio.sleep(LOOK_EVERY)

    async def _look(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        began = time.time()
        async with asyncio.timeout(10):
            long = await (await connection.execute(_LONG)).fetchall()
            counts = await (await connection.execute(_COUNTS)).fetchone()
        self.samples += [Sample(*row) for row in long]  # type: ignore[arg-type]
        assert counts is not None
        self.open, self.ended = int(str(counts[0])), int(str(counts[1]))
        self.looks += 1
        if (took := time.time() - began) > STARVED:
            self.starved.append(Fault("starved", began, began + took))
        if count_runnable_processes() >= BUSY * (os.cpu_count() or 1):
            self.starved.append(Fault("busy", began - LOOK_EVERY, began + took))


def count_runnable_processes() -> int:
    """Return the number of runnable processes, or 0 if the system does not report it."""
    with suppress(OSError):
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
    return 0
