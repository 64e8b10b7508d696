"""PostgreSQL server of a run, which can be crashed.

Each phase has its own database.

fsync is off. That makes no difference here: the operating system keeps the writes of a killed process, and
only a crash of the machine would lose them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import psycopg
from psycopg import sql

from rota import Rota
from rota.localpg import LocalPostgres
from rota.testing.server import with_database

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "300",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "log_min_messages": "warning",
}


class Server:
    def __init__(self, *, listen: bool = False) -> None:
        memory = Path("/dev/shm")
        parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
        self._base = Path(tempfile.mkdtemp(prefix="rota-chaos-", dir=parent)).resolve()
        self._base.chmod(0o755)  # the account that runs PostgreSQL for root needs access
        self._local = LocalPostgres(
            self._base / "pg", profile="test", settings=SETTINGS, listen=listen
        )
        self._dsn = ""
        self._read = 0
        self._crashing = asyncio.Lock()

    async def open(self) -> None:
        self._dsn = await asyncio.to_thread(self._local.start)

    async def close(self) -> None:
        await asyncio.to_thread(self._local.stop)
        shutil.rmtree(self._base, ignore_errors=True)

    async def database(self, name: str) -> str:
        """Create a database, migrated and with the audit."""
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            await connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        dsn = with_database(self._dsn, name)
        async with Rota(dsn) as app:
            await app.migrate()
        audit = Path(__file__).with_name("audit.sql").read_text()
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(audit.encode())
        return dsn

    async def drop(self, name: str) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            statement = sql.SQL("drop database if exists {} with (force)")
            await connection.execute(statement.format(sql.Identifier(name)))

    async def crash(self, *, immediately: bool, away: float = 0.0) -> None:
        """Crash the server, by `pg_ctl stop -m immediate` or SIGKILL of the postmaster.

        Restart it after `away` seconds.
        """
        async with self._crashing:
            if immediately and not away:
                await asyncio.to_thread(self._local.restart, immediately=True)
                return
            await asyncio.to_thread(self._local.kill)
            await asyncio.sleep(away)
            await asyncio.to_thread(self._local.restart)

    def log(self) -> str:
        """Return the server's log since the last call."""
        with self._local.paths.log.open(errors="replace") as file:
            file.seek(self._read)
            said = file.read()
            self._read = file.tell()
        return said
