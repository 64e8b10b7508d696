"""One PostgreSQL for all contenders, with the same settings and durable for all.

Each contender has a database of its own, dropped and made again before each measurement.
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
    # Checkpoints come when the harness asks for one, not in the middle of somebody's turn.
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}
SHOWN = (*SETTINGS, "server_version", "autovacuum", "jit", "wal_level")


class Cluster:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def dsn(self, database: str) -> str:
        return urlunsplit(urlsplit(self._dsn)._replace(path=f"/{database}"))

    @contextmanager
    def connection(self, database: str | None = None) -> Iterator[psycopg.Connection]:
        dsn = self.dsn(database) if database else self._dsn
        with psycopg.connect(dsn, autocommit=True) as connection:
            yield connection

    def create(self, database: str, template: str | None = None) -> str:
        """A new database of this name, whatever was there before; answers its DSN."""
        self.drop(database)
        name = sql.Identifier(database)
        with self.connection() as connection:
            if template:
                # Blocks instead of WAL: a history of millions of rows is copied in seconds.
                copy = sql.SQL("create database {} template {} strategy file_copy")
                connection.execute(copy.format(name, sql.Identifier(template)))
            else:
                connection.execute(sql.SQL("create database {}").format(name))
        return self.dsn(database)

    def drop(self, database: str) -> None:
        statement = sql.SQL("drop database if exists {} with (force)")
        with self.connection() as connection:
            connection.execute(statement.format(sql.Identifier(database)))

    def settle(self, database: str) -> None:
        """Statistics fresh, pages clean, the write-ahead log short: the same start for all."""
        with self.connection(database) as connection:
            connection.execute("vacuum (analyze)")
            connection.execute("checkpoint")

    def number(self, database: str, query: str) -> int:
        with self.connection(database) as connection:
            row = connection.execute(query).fetchone()  # type: ignore[arg-type]
        assert row is not None
        return int(row[0])

    def settings(self) -> dict[str, str]:
        query = "select name, current_setting(name) from pg_settings where name = any(%b)"
        with self.connection() as connection:
            return dict(connection.execute(query, (list(SHOWN),)).fetchall())


@contextmanager
def private() -> Iterator[Cluster]:
    """A server of our own, on a socket, stopped and removed afterwards."""
    from rota.localpg import LocalPostgres

    # A distribution's build before the wheel's: it is what people run in earnest.
    if "ROTA_PG_BIN" not in os.environ and (pg_ctl := shutil.which("pg_ctl")):
        os.environ["ROTA_PG_BIN"] = str(Path(pg_ctl).resolve().parent)
    BENCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=BENCH) as directory:
        server = LocalPostgres(Path(directory) / "pg", settings=SETTINGS, database="bench")
        try:
            yield Cluster(server.start())
        finally:
            server.stop()


@contextmanager
def given(dsn: str) -> Iterator[Cluster]:
    """Somebody's server; its settings are reported as they are."""
    yield Cluster(dsn)
