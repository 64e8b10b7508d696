"""Jobs that are committed long after they were inserted."""

from __future__ import annotations

import asyncio
import statistics
import time

import psycopg
import pytest

from rota import Rota
from support.queries import until


@pytest.mark.slow
async def test_claim_job_committed_late_is_found_within_100_ms(rota_dsn: str) -> None:
    """A fifth of the producers commit after 50 ms, so that their jobs lie below the queue cursor."""
    committed: dict[int, float] = {}
    arrived: dict[int, float] = {}
    async with Rota(rota_dsn) as app:

        @app.task
        async def arrive(n: int) -> None:
            arrived[n] = time.monotonic()

        async def produce(number: int) -> None:
            async with await psycopg.AsyncConnection.connect(rota_dsn) as connection:
                for n in range(number, 400, 8):
                    await arrive.options(on=connection).start(n=n)
                    if (n // 8) % 5 == 0:
                        await asyncio.sleep(0.05)
                    committed[n] = time.monotonic()
                    await connection.commit()
                    await asyncio.sleep(0.005)

        async with app.worker():
            await asyncio.gather(*(produce(number) for number in range(8)))
            await until(lambda: _has_count(arrived, 400))

    waited = sorted(arrived[n] - committed[n] for n in committed)
    p50, p99 = statistics.median(waited), waited[int(len(waited) * 0.99)]
    assert p99 < 0.1, f"p50 {p50:.3f} s, p99 {p99:.3f} s"


async def _has_count(found: dict[int, float], count: int) -> bool:
    return len(found) >= count
