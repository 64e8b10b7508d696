"""Two real servers: a primary and a standby that can be promoted."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from rota.localpg import LocalPostgres, account
from rota.localpg.binaries import find_binaries
from rota.localpg.data_directory import server_environment


@contextmanager
def memory_directory() -> Iterator[Path]:
    """Yield a directory for servers, in memory if possible."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="rota-outage-", dir=memory)).resolve()
    directory.chmod(0o755)  # the account that runs PostgreSQL for root needs access
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class PrimaryAndStandby:
    def __init__(self, directory: Path) -> None:
        self.primary = LocalPostgres(directory / "one", settings={"fsync": "off"})
        self._data = directory / "two"
        self._standby: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Return a DSN with both hosts, in the order in which they are tried."""
        one = str(self.primary.paths.data)
        return f"postgresql://postgres@/rota?host={one},{self._data}&port=5432,5432"

    @property
    def standby_dsn(self) -> str:
        return f"postgresql://postgres@/rota?host={self._data}&port=5432"

    def start(self) -> None:
        self.primary.start()
        data = self.primary.paths.data
        user, binaries = account.choose(data), find_binaries()
        self._data.mkdir(mode=0o700)
        account.chown_tree(self._data, user)
        copy = ["-D", self._data, "-R", "-c", "fast", "--no-sync", "-U", "postgres", "-p", "5432"]
        subprocess.run(
            user.command(binaries.program("pg_basebackup"), *map(str, copy), "-h", data),
            check=True,
            capture_output=True,
            env=server_environment(),
            **user.process_user(),
        )
        for left in self._data.glob(".s.PGSQL.*"):  # copied with the data directory of the primary
            left.unlink()
        self._standby = subprocess.Popen(
            user.command(
                binaries.program("postgres"),
                *("-D", self._data, "-c", f"unix_socket_directories={self._data}"),
                *("-c", "listen_addresses=", "-c", "port=5432", "-c", "fsync=off"),
            ),
            stderr=subprocess.DEVNULL,
            env=server_environment(),
            cwd="/",
            **user.process_user(),
        )
        self._until("select pg_is_in_recovery()")

    def follows(self) -> None:
        """Wait until the standby has replayed every commit of the primary."""
        with psycopg.connect(self.primary.dsn, autocommit=True) as connection:
            [at] = connection.execute("select pg_current_wal_lsn()").fetchone() or ("",)
        self._until(f"select pg_last_wal_replay_lsn() >= '{at}'")

    def promote(self) -> None:
        with psycopg.connect(self.standby_dsn, autocommit=True) as connection:
            connection.execute("select pg_promote()")

    def stop(self) -> None:
        if self._standby is not None:
            self._standby.terminate()
            self._standby.wait(60)
        self.primary.stop()

    def _until(self, query: str) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                with psycopg.connect(self.standby_dsn, autocommit=True) as connection:
                    if connection.execute(query.encode()).fetchone() == (True,):
                        return
            except psycopg.OperationalError:
                pass
            assert time.monotonic() < deadline, f"the standby does not come to: {query}"
            time.sleep(0.02)
