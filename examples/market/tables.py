"""Tables of the results: `python -m examples.market.tables` creates them in ROTA_DATABASE_URL.

Items of the feed have a key, because the feed lists them repeatedly. Rows derived from them have none, so a
repeated action would create a second row.
"""

from __future__ import annotations

import asyncio

import psycopg

from rota import Rota

from .settings import DATABASE

TABLES = """
    create table if not exists filings (number bigint primary key, symbol text, topic text, form text);
    create table if not exists halts (number bigint primary key, symbol text, reason text);
    create table if not exists articles (topic text primary key, symbol text, headline text,
        sources text[]);
    create table if not exists findings (about text, topic text, score float8, cents int);
    create table if not exists alerts (about text, message text);
"""


async def prepare(dsn: str) -> None:
    async with Rota(dsn) as app:
        await app.migrate()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(TABLES)


if __name__ == "__main__":
    asyncio.run(prepare(DATABASE))
