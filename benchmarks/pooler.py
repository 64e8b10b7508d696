"""PgBouncer in transaction mode in front of the server, for measurements through a pooler."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.stage import Wrong
from rota.localpg import account

CONFIGURATION = """
[databases]
* = {server}

[pgbouncer]
unix_socket_dir = {directory}
listen_port = {port}
auth_type = any
pool_mode = transaction
max_client_conn = 1000
logfile = {directory}/log
"""
PORT = 6432  # part of the socket's name; no TCP port is opened
BOOT = 20.0


def installed() -> str | None:
    """Return the path of PgBouncer, or None; it is often not in PATH."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def pooler(program: str, dsn: str) -> Iterator[str]:
    """Run a pooler in front of the database; yield the DSN through it."""
    where = conninfo_to_dict(dsn)
    # Run as the server's user: its socket may be accessible to that account only.
    user = account.choose(Path(str(where.get("host") or "")))
    directory = Path(tempfile.mkdtemp(prefix="rota-bench-pgbouncer-"))
    directory.chmod(0o755)
    try:
        names = ("host", "port", "user", "password")
        server = " ".join(f"{name}={where[name]}" for name in names if where.get(name))
        settings = directory / "ini"
        settings.touch(0o600)  # the file may contain a password
        settings.write_text(
            CONFIGURATION.format(server=server, directory=directory, port=PORT), "utf-8"
        )
        account.chown_tree(directory, user)
        process = subprocess.Popen(
            user.command(program, "-q", settings), stdin=subprocess.DEVNULL, **user.process_user()
        )
        try:
            through = f"postgresql://{where.get('user') or 'postgres'}@/{where['dbname']}"
            through += f"?host={directory}&port={PORT}"
            _await(through, process.poll, directory / "log")
            yield through
        finally:
            process.kill()  # its clients have disconnected; no graceful shutdown is needed
            process.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _await(dsn: str, ended: Callable[[], int | None], log: Path) -> None:
    deadline = time.monotonic() + BOOT
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if ended() is not None or time.monotonic() > deadline:
                output = log.read_text() if log.exists() else str(error)
                raise Wrong(f"PgBouncer does not start: {output[-1000:]}") from None
            time.sleep(0.02)
