"""Tables of the API and its jobs: `python -m examples.agents.tables` creates them in ROTA_DATABASE_URL."""

from __future__ import annotations

import asyncio
import os

import psycopg

from rota import Rota

TABLES = """
    create table if not exists steering (run bigint primary key, pauses int not null, resumes int not null);
    create table if not exists results (run bigint, content text, planned timestamptz, pid int);
"""  # Results have no key: a repeated action would create a second row.


async def prepare(dsn: str) -> None:
    async with Rota(dsn) as app:
        await app.migrate()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(TABLES)


if __name__ == "__main__":
    asyncio.run(prepare(os.environ["ROTA_DATABASE_URL"]))
