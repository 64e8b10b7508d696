"""Migrations: numbered, forward only, in one transaction under a lock.

Any number of processes may migrate at once. The first one applies the migrations; the others wait for
the lock, check again and find nothing left to do. A deadlock or lock timeout is retried. A schema of a
newer Rota is refused and never changed.
"""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from rota.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from rota.store import pg_errors
from rota.store.advisory_locks import MIGRATION, key_of
from rota.store.database import Database
from rota.store.query import Query, check_schema, in_schema, load

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_CONTENDED = {"40P01", "55P03"}
"""SQLSTATEs of a deadlock and of a lock timeout, after which a retry usually succeeds."""

MAX_ATTEMPTS = 5
RETRY_SECONDS = 0.2
"""Pause after the first failed attempt, doubled after each further one."""

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Return every migration of this version, in order."""
    found = []
    for file in (resources.files("rota.store") / "migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text("utf-8")))
    return tuple(sorted(found, key=lambda each: each.version))


def newest_version() -> int:
    return migrations()[-1].version


async def migrate(database: Database) -> list[Migration]:
    """Bring the schema up to date. Return the migrations that were applied."""
    schema = check_schema(database.schema)
    for attempt in range(1, MAX_ATTEMPTS):
        try:
            return await _migrate(database, schema)
        except Exception as error:
            if pg_errors.sqlstate(error) not in _CONTENDED:
                raise
        await asyncio.sleep(RETRY_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
    return await _migrate(database, schema)


async def _migrate(database: Database, schema: str) -> list[Migration]:
    from psycopg import sql

    connection = await database.connect()
    try:
        async with connection.transaction():
            # Waiting for another process to finish is not a failure, however long it takes.
            connection.answer_timeout = None
            await connection.execute("set local lock_timeout = 0")
            await connection.execute("set local statement_timeout = 0")
            await connection.execute(
                load("migration/lock", schema).encode(),
                {"namespace": MIGRATION, "key": key_of(schema)},
            )
            found = await connection.execute(
                "select from pg_namespace where nspname = %s", (schema,)
            )
            if await found.fetchone() is None:
                await connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
            await connection.execute(load("migration/create_table", schema).encode())
            applied = await _applied(connection, schema)
            _refuse_newer(applied, schema)
            missing = [each for each in migrations() if each.version not in applied]
            for migration in missing:
                await connection.execute(in_schema(migration.text, schema).encode(), prepare=False)
                await connection.execute(
                    load("migration/record", schema).encode(),
                    {"version": migration.version, "name": migration.name},
                )
            return missing
    finally:
        await connection.close()


async def check(database: Database) -> None:
    """Raise an error if the schema is missing, too old or too new."""
    query: Query[tuple[int, str]] = Query(
        "migration/applied", {}, lambda version, name: (version, name)
    )
    try:
        found = await database.run(query)
    except Exception as error:
        # An unreachable server is reported at once. If the connection breaks during the query,
        # retry.
        if pg_errors.was_not_sent(error) or not pg_errors.is_transient(error):
            raise
        found = await database.run_with_retry(query)
    _refuse_mismatch(dict(found), database.schema)


async def check_on(connection: AsyncConnection[Any], schema: str) -> None:
    """Do the same on an open connection."""
    with pg_errors.translated(schema):
        applied = await _applied(connection, schema)
    _refuse_mismatch(applied, schema)


def _refuse_mismatch(applied: dict[int, str], schema: str) -> None:
    if not applied:
        raise SchemaMissing(
            f"schema {schema!r} has no tables of Rota; run `rota db migrate`, "
            "or await app.migrate()"
        )
    _refuse_newer(applied, schema)
    behind = [each for each in migrations() if each.version not in applied]
    if behind:
        raise SchemaTooOld(
            f"schema {schema!r} is {len(behind)} migration(s) behind this Rota "
            f"(the next is {behind[0].version:04d} {behind[0].name}); run `rota db migrate`"
        )


async def applied(database: Database) -> dict[int, str]:
    """Return the applied migrations; empty if the schema does not exist."""
    try:
        async with database.connection() as connection:
            return await _applied(connection, database.schema)
    except SchemaMissing:
        return {}


async def _applied(connection: AsyncConnection[Any], schema: str) -> dict[int, str]:
    cursor = await connection.execute(load("migration/applied", schema).encode())
    return {version: name for version, name in await cursor.fetchall()}


def _refuse_newer(applied: dict[int, str], schema: str) -> None:
    unknown = [version for version in applied if version > newest_version()]
    if unknown:
        raise SchemaTooNew(
            f"schema {schema!r} has migration {max(unknown):04d} ({applied[max(unknown)]}), this Rota "
            f"knows them up to {newest_version():04d}; upgrade Rota here, or use another database"
        )
