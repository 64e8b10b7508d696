"""Test databases: created in milliseconds, migrated, and dropped afterwards.

The server is the one of ROTA_TEST_DATABASE_URL, with a role that may create databases, or else a private
PostgreSQL in a temporary directory. A template is migrated once, and each test gets a copy.

Every database is called `rota_test_…` and belongs to a session that keeps one connection open under the
same name. Databases of a killed session are dropped by the next one.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rota.errors import LocalPostgresError
from rota.testing.clock import THROWAWAY_SCHEMA

if TYPE_CHECKING:
    from psycopg import Connection

DSN_VARIABLE = "ROTA_TEST_DATABASE_URL"
DIRECTORY_PREFIX = "rota-pytest-"
MIN_FREE_BYTES = 4 * 1024**3
ABANDONED_SECONDS = 3600.0

_DATABASE_NAME = re.compile(r"(rota_test_[0-9a-f]{10})_\w+")


@contextmanager
def server() -> Iterator[DatabaseServer]:
    """Open the server of this test session."""
    configured_dsn = os.environ.get(DSN_VARIABLE)
    if configured_dsn:
        with DatabaseServer.connect(configured_dsn) as opened:
            yield opened
    else:
        with _private_server() as dsn, DatabaseServer.connect(dsn, private=True) as opened:
            yield opened


@contextmanager
def _private_server() -> Iterator[str]:
    from rota.localpg import LocalPostgres

    parent = _base_directory()
    _remove_abandoned(parent)
    base = Path(tempfile.mkdtemp(prefix=DIRECTORY_PREFIX, dir=parent)).resolve()
    base.chmod(0o755)  # PostgreSQL does not run as root; its user must be able to enter
    try:
        local = LocalPostgres(base / "pg", profile="test")
        try:
            dsn = local.start()
        except LocalPostgresError as error:
            error.add_note(f"Tests need a PostgreSQL; to use another one, set {DSN_VARIABLE}.")
            raise
        try:
            yield dsn
        finally:
            local.stop()
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _base_directory() -> Path:
    """Return a directory in memory if it has room: creating databases means creating files."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)
    if usable and shutil.disk_usage(memory).free > MIN_FREE_BYTES:
        return memory
    return Path(tempfile.gettempdir())


def _remove_abandoned(parent: Path) -> None:
    """Remove directories of killed sessions, whose servers have stopped by themselves."""
    for directory in parent.glob(f"{DIRECTORY_PREFIX}*"):
        with suppress(OSError, LocalPostgresError):
            if _is_abandoned(directory):
                shutil.rmtree(directory, ignore_errors=True)


def _is_abandoned(directory: Path) -> bool:
    from rota.localpg import LocalPostgres

    stat = directory.stat()
    if stat.st_uid != os.geteuid() or time.time() - stat.st_mtime < ABANDONED_SECONDS:
        return False
    return not LocalPostgres(directory / "pg").status().running


class DatabaseServer:
    """A server in which databases can be created."""

    def __init__(
        self, dsn: str, name: str, connection: Connection[Any], *, private: bool = False
    ) -> None:
        self._is_private = private
        self.dsn = dsn
        self._session_name = name
        self._connection = connection
        self._numbers = count(1)
        self._template: str | None = None

    @classmethod
    @contextmanager
    def connect(cls, dsn: str, *, private: bool = False) -> Iterator[DatabaseServer]:
        import psycopg

        name = f"rota_test_{uuid4().hex[:10]}"
        with psycopg.connect(dsn, autocommit=True, application_name=name) as connection:
            opened = cls(dsn, name, connection, private=private)
            opened._drop_abandoned()
            try:
                yield opened
            finally:
                if opened._template is not None:
                    opened._drop(opened._template)

    def database(self) -> AbstractContextManager[str]:
        """Yield the DSN of a fresh, migrated database."""
        return self._copy_of(self._migrated_template())

    def empty_database(self) -> AbstractContextManager[str]:
        """Yield the DSN of an empty database, without Rota's schema."""
        return self._copy_of("template1")

    @contextmanager
    def _copy_of(self, template: str) -> Iterator[str]:
        name = f"{self._session_name}_{next(self._numbers)}"
        self._create(name, template)
        try:
            yield with_database(self.dsn, name)
        finally:
            self._drop(name)

    def _migrated_template(self) -> str:
        """Return the name of the template, which is created at first use."""
        if self._template is None:
            self._template = f"{self._session_name}_template"
            self._create(self._template, "template1")
            prepared = _prepare_template(with_database(self.dsn, self._template))
            # In a thread, because the caller may run in an event loop.
            with ThreadPoolExecutor(1, "rota test template") as thread:
                thread.submit(asyncio.run, prepared).result()
        return self._template

    def _create(self, name: str, template: str) -> None:
        from psycopg import sql

        create = sql.SQL("create database {} template {}").format(
            sql.Identifier(name), sql.Identifier(template)
        )
        if self._is_private and self._connection.info.server_version >= 150000:
            # Half the work of logging the copy to the WAL, which a private server does not need.
            create += sql.SQL(" strategy file_copy")
        self._connection.execute(create)

    def _drop(self, name: str) -> None:
        from psycopg import sql

        self._connection.execute(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        )

    def _drop_abandoned(self) -> None:
        """Drop the databases of sessions that have ended."""
        found = self._connection.execute(
            "select datname, array(select application_name from pg_stat_activity) from pg_database"
            " where pg_get_userbyid(datdba) = current_user"
        )
        for name, open_sessions in found.fetchall():
            match = _DATABASE_NAME.fullmatch(name)
            if match and match[1] not in open_sessions:
                self._drop(name)


async def _prepare_template(dsn: str) -> None:
    from psycopg import sql

    from rota.model.settings import Settings
    from rota.store.database import Database
    from rota.store.migrate import migrate

    database = Database(dsn, Settings.read())
    try:
        await migrate(database)
        async with database.connection() as connection:
            await connection.execute(
                sql.SQL("create schema {}").format(sql.Identifier(THROWAWAY_SCHEMA))
            )
    finally:
        await database.close()


def with_database(dsn: str, name: str) -> str:
    """Return the DSN with another database. A URL stays a URL, which more drivers support."""
    scheme, separator, rest = dsn.partition("://")
    if not separator:
        from psycopg.conninfo import make_conninfo

        return make_conninfo(dsn, dbname=name)
    head, _, query = rest.partition("?")
    options = "&".join(each for each in query.split("&") if each and not each.startswith("dbname="))
    return f"{scheme}://{head.partition('/')[0]}/{name}" + (f"?{options}" if options else "")
