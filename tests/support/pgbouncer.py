"""PgBouncer in transaction mode in front of the test server.

It shares few connections, so that code which depends on keeping one soon fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from rota.localpg import account

SHARED = 5
"""Connections that all clients of a database share."""

CONFIGURATION = """
[databases]
* = {server}

[pgbouncer]
unix_socket_dir = {sockets}
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = {shared}
max_client_conn = 1000
query_wait_timeout = 20
server_login_retry = 1
logfile = {log}
"""
PORT = 6432  # only names the socket; no port is opened


@dataclass(frozen=True, slots=True)
class PgBouncer:
    directory: Path
    process: subprocess.Popen[bytes]

    def before(self, dsn: str) -> str:
        """Return a DSN of the same database through the pooler."""
        name = conninfo_to_dict(dsn)["dbname"]
        return f"postgresql://postgres@/{name}?host={self.directory}&port={PORT}"

    @property
    def said(self) -> str:
        return (self.directory / "log").read_text()


def pgbouncer_path() -> str | None:
    """Return the path of PgBouncer, if it is installed; most users do not have its directory in PATH."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def run_pgbouncer(dsn: str, shared: int = SHARED) -> Iterator[PgBouncer]:
    """Run a pooler in front of the server of this DSN."""
    program = pgbouncer_path()
    if program is None:
        pytest.skip("there is no PgBouncer here; on Debian and Ubuntu: apt install pgbouncer")
    where = conninfo_to_dict(dsn)
    # Use the account of the server: its socket may be private to that account.
    user = account.choose(Path(str(where.get("host") or "")))
    directory = Path(tempfile.mkdtemp(prefix="rota-pgbouncer-"))
    directory.chmod(0o755)
    try:
        names = ("host", "port", "user", "password")
        server = " ".join(f"{name}={where[name]}" for name in names if where.get(name))
        (directory / "ini").write_text(
            CONFIGURATION.format(
                server=server, sockets=directory, port=PORT, shared=shared, log=directory / "log"
            )
        )
        account.chown_tree(directory, user)
        process = subprocess.Popen(
            user.command(program, "-q", directory / "ini"),
            stdin=subprocess.DEVNULL,
            **user.process_user(),
        )
        started = PgBouncer(directory, process)
        try:
            _wait_until_up(started, dsn)
            yield started
        finally:
            process.kill()  # its clients are gone, so it needs no graceful shutdown
            process.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_up(started: PgBouncer, dsn: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(started.before(dsn), connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if started.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PgBouncer does not come up: {started.said}")
            time.sleep(0.02)
