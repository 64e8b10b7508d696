"""Baseline: the time that PostgreSQL itself takes for the same rows, without a queue."""

from __future__ import annotations

import json
from collections.abc import Iterable

import psycopg

SCHEMA = """
create table if not exists bare_jobs (
    id         bigint generated always as identity primary key,
    task       text not null,
    queue      text not null,
    arguments  jsonb not null,
    created_at timestamptz not null default now()
)
"""
ONE = "insert into bare_jobs (task, queue, arguments) values (%b, %b, %b::jsonb) returning id"
MANY = """
insert into bare_jobs (task, queue, arguments)
select 'noop', 'default', given::jsonb from unnest(%b::text[]) as given
"""


class Bare:
    """Autocommit connection; its statements are prepared at their first use."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()

    @classmethod
    async def open(cls, dsn: str) -> Bare:
        connection = await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, prepare_threshold=0
        )
        await connection.execute(SCHEMA)
        return cls(connection)

    async def insert(self, n: int, url: str) -> None:
        arguments = json.dumps({"n": n, "url": url})
        await self._cursor.execute(ONE, ("noop", "default", arguments))
        await self._cursor.fetchone()

    async def insert_many(self, numbers: Iterable[int], url: str) -> None:
        # A format string is faster than a JSON library.
        rows = [f'{{"n": {n}, "url": "{url}"}}' for n in numbers]
        await self._cursor.execute(MANY, (rows,))

    async def close(self) -> None:
        await self._connection.close()
