"""Durable PostgreSQL server with the same settings for all contenders.

Each contender has its own database, which is dropped and created again before each measurement.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from benchmarks.places import BENCH

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_connections": "200",
    # Checkpoints run when the harness requests them, not during a measurement.
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}
SHOWN = (*SETTINGS, "server_version", "autovacuum", "jit", "wal_level")


class Cluster:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._made: set[str] = set()

    def dsn(self, database: str) -> str:
        return urlunsplit(urlsplit(self._dsn)._replace(path=f"/{database}"))

    @contextmanager
    def connection(self, database: str | None = None) -> Iterator[psycopg.Connection]:
        dsn = self.dsn(database) if database else self._dsn
        with psycopg.connect(dsn, autocommit=True) as connection:
            yield connection

    def create(self, database: str, template: str | None = None) -> str:
        """Create a database of this name in place of an existing one; return its DSN."""
        self.drop(database)
        statement = sql.SQL("create database {}").format(sql.Identifier(database))
        with self.connection() as connection:
            if template:
                statement += sql.SQL(" template {}").format(sql.Identifier(template))
            if template and connection.info.server_version >= 150000:
                # Copies files instead of writing WAL (before 15 the only way): millions of rows in seconds.
                statement += sql.SQL(" strategy file_copy")
            connection.execute(statement)
        self._made.add(database)
        return self.dsn(database)

    def drop(self, database: str) -> None:
        statement = sql.SQL("drop database if exists {} with (force)")
        with self.connection() as connection:
            connection.execute(statement.format(sql.Identifier(database)))
        self._made.discard(database)

    def clear(self) -> None:
        """Drop the databases that a failed workload has left."""
        for database in sorted(self._made):
            self.drop(database)

    def settle(self, database: str) -> None:
        """Analyze, vacuum and checkpoint, so that all contenders start from the same state."""
        with self.connection(database) as connection:
            connection.execute("vacuum (analyze)")
            connection.execute("checkpoint")

    def number(self, database: str, query: str) -> int:
        with self.connection(database) as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])

    def settings(self) -> dict[str, str]:
        query = "select name, current_setting(name) from pg_settings where name = any(%b)"
        with self.connection() as connection:
            return dict(connection.execute(query, (list(SHOWN),)).fetchall())


@contextmanager
def private() -> Iterator[Cluster]:
    """Start a private server on a socket; stop and remove it afterwards."""
    from rota.localpg import LocalPostgres

    # Prefer a distribution's build to the wheel's: it is the one used in production.
    if "ROTA_PG_BIN" not in os.environ and (pg_ctl := shutil.which("pg_ctl")):
        os.environ["ROTA_PG_BIN"] = str(Path(pg_ctl).resolve().parent)
    BENCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=BENCH) as directory:
        # As root the server runs as `postgres`, which must be able to enter the directory.
        os.chmod(directory, 0o711)
        server = LocalPostgres(Path(directory) / "pg", settings=SETTINGS, database="bench")
        try:
            yield Cluster(server.start())
        finally:
            server.stop()


@contextmanager
def given(dsn: str) -> Iterator[Cluster]:
    """Use an existing server; report its settings and leave it unchanged."""
    cluster = Cluster(dsn)
    try:
        yield cluster
    finally:
        cluster.clear()
