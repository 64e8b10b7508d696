"""Migrations: numbered, forward only, in one transaction under a lock.

Any number of processes may migrate at once. The first one applies the migrations; the others wait for
the lock, check again and find nothing left to do. A deadlock or lock timeout is retried.

Each applied migration is stored with a checksum of its text and with its `-- breaking:` mark. Code may run
on a schema with newer migrations if none of them is breaking, so a deploy can be rolled back. A schema
whose migrations were edited after they ran, or one with a newer breaking migration, is refused and never
changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rota.errors import DatabaseError, SchemaChanged, SchemaMissing, SchemaTooNew, SchemaTooOld
from rota.model.text import counted
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


class Migration(msgspec.Struct, frozen=True):
    version: int
    name: str
    text: str

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"

    @property
    def is_breaking(self) -> bool:
        """True if code that does not have this migration cannot run on a schema that has it."""
        return self.text.startswith("-- breaking: yes\n")

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


class AppliedMigration(msgspec.Struct, frozen=True):
    version: int
    name: str
    is_breaking: bool
    checksum: str

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"


SchemaState = Literal["missing", "changed", "too new", "outdated", "newer", "up to date"]


class SchemaComparison(msgspec.Struct, frozen=True):
    """The migrations of a schema, compared with those of this version of Rota."""

    schema: str
    applied: tuple[AppliedMigration, ...]
    pending: tuple[Migration, ...]
    newer: tuple[AppliedMigration, ...]
    changed: tuple[Migration, ...]

    @property
    def state(self) -> SchemaState:
        if not self.applied:
            return "missing"
        if self.changed:
            return "changed"
        if any(each.is_breaking for each in self.newer) or (self.newer and self.pending):
            return "too new"
        if self.pending:
            return "outdated"
        return "newer" if self.newer else "up to date"

    @property
    def error(self) -> DatabaseError | None:
        """The reason for which this version of Rota cannot use the schema. None if it can."""
        match self.state:
            case "missing":
                return SchemaMissing(
                    f"schema {self.schema!r} has no tables of Rota; run `rota db migrate`, "
                    "or await app.migrate()"
                )
            case "changed":
                return SchemaChanged(
                    f"schema {self.schema!r} was made by another text of migration {self.changed[0].label} "
                    "than this Rota has: the file was edited after it ran. Use the Rota that applied it; "
                    "or, if nothing in the schema is needed, drop the schema and run `rota db migrate`"
                )
            case "too new":
                breaking = [each for each in self.newer if each.is_breaking] or self.newer
                return SchemaTooNew(
                    f"schema {self.schema!r} has migration {breaking[-1].label}, which needs a newer "
                    f"Rota; this one knows migrations up to {newest_version():04d}. Upgrade Rota "
                    "here, or use another database"
                )
            case "outdated":
                return SchemaTooOld(
                    f"schema {self.schema!r} is {counted(len(self.pending), 'migration')} behind "
                    f"this Rota (the next is {self.pending[0].label}); run `rota db migrate`"
                )
        return None


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
            await connection.execute(*_lock(schema))
            found = await connection.execute(
                "select from pg_namespace where nspname = %s", (schema,)
            )
            if await found.fetchone() is None:
                await connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
            await connection.execute(load("migration/create_table", schema).encode())
            compared = compare(await _applied(connection, schema), schema)
            if isinstance(compared.error, SchemaChanged | SchemaTooNew):
                raise compared.error
            for migration in compared.pending:
                await connection.execute(in_schema(migration.text, schema).encode(), prepare=False)
                await connection.execute(*_record(migration, schema))
            return list(compared.pending)
    finally:
        await connection.close()


async def script(database: Database) -> str:
    """Return the pending migrations as a script for psql, to be run by a role with more rights. Empty if
    there are none."""
    from psycopg import AsyncClientCursor, sql

    compared = await compare_schema(database)
    if isinstance(compared.error, SchemaChanged | SchemaTooNew):
        raise compared.error
    if not compared.pending:
        return ""
    schema = compared.schema
    async with database.connection() as connection:
        cursor = AsyncClientCursor(connection)
        create_schema = sql.SQL("create schema if not exists {}").format(sql.Identifier(schema))
        statements = [
            "begin",
            cursor.mogrify(*_lock(schema)).strip(),
            create_schema.as_string(connection),
            load("migration/create_table", schema).strip(),
        ]
        for each in compared.pending:
            title = f"-- Migration {each.label}"
            statements.append(f"{title}\n{in_schema(each.text, schema).strip().removesuffix(';')}")
            statements.append(cursor.mogrify(*_record(each, schema)).strip())
    return "".join(f"{each};\n\n" for each in [*statements, "commit"])


def _lock(schema: str) -> tuple[bytes, dict[str, Any]]:
    query = load("migration/lock", schema).encode()
    return query, {"namespace": MIGRATION, "key": key_of(schema)}


def _record(migration: Migration, schema: str) -> tuple[bytes, dict[str, Any]]:
    return load("migration/record", schema).encode(), {
        "version": migration.version,
        "name": migration.name,
        "breaking": migration.is_breaking,
        "checksum": migration.checksum,
    }


def compare(applied: list[AppliedMigration], schema: str) -> SchemaComparison:
    known = {each.version: each for each in migrations()}
    checksums = {each.version: each.checksum for each in applied}
    return SchemaComparison(
        schema,
        applied=tuple(applied),
        pending=tuple(each for each in known.values() if each.version not in checksums),
        newer=tuple(each for each in applied if each.version > newest_version()),
        changed=tuple(
            each
            for each in known.values()
            if checksums.get(each.version, each.checksum) != each.checksum
        ),
    )


async def compare_schema(database: Database) -> SchemaComparison:
    """Compare the schema of this database with this version of Rota, also if it does not exist."""
    try:
        async with database.connection() as connection:
            return compare(await _applied(connection, database.schema), database.schema)
    except SchemaMissing:
        return compare([], database.schema)


async def check(database: Database) -> None:
    """Raise an error if this version of Rota cannot use the schema."""
    query = Query("migration/applied", {}, AppliedMigration)
    try:
        found = await database.run(query)
    except Exception as error:
        # An unreachable server is reported at once. If the connection breaks during the query,
        # retry.
        if pg_errors.was_not_sent(error) or not pg_errors.is_transient(error):
            raise
        found = await database.run_with_retry(query)
    _refuse(compare(found, database.schema))


async def check_on(connection: AsyncConnection[Any], schema: str) -> None:
    """Do the same on an open connection."""
    with pg_errors.translated(schema, own_connection=True):
        applied = await _applied(connection, schema)
    _refuse(compare(applied, schema))


def _refuse(compared: SchemaComparison) -> None:
    if compared.error is not None:
        raise compared.error


async def _applied(connection: AsyncConnection[Any], schema: str) -> list[AppliedMigration]:
    cursor = await connection.execute(load("migration/applied", schema).encode())
    return [AppliedMigration(*row) for row in await cursor.fetchall()]
