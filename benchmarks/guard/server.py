"""PostgreSQL server of the guard: CPU time of its processes, and the rows and WAL that they wrote.

Autovacuum and full_page_writes are off, so that the bytes of WAL depend only on the statements. Both
variants use the same server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cluster import SETTINGS, Cluster
from benchmarks.places import BENCH

GUARD_SETTINGS = {**SETTINGS, "autovacuum": "off", "full_page_writes": "off"}

ROW_VERSIONS = """
select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables
"""
WAL_BYTES = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"


@dataclass(frozen=True)
class Server:
    cluster: Cluster
    pid: int
    """Process id of the postmaster."""

    def cpu_ns(self) -> int:
        """Return the CPU time of all live server processes, in nanoseconds."""
        return sum(process_cpu_ns(pid) for pid in (self.pid, *self._children()))

    def _children(self) -> Iterator[int]:
        for entry in os.listdir("/proc"):
            with suppress(OSError, ValueError):
                stat = Path("/proc", str(int(entry)), "stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) == self.pid:
                    yield int(entry)

    def row_versions(self, database: str) -> int:
        """Return the rows inserted, updated and deleted so far. Sessions must have ended or be idle."""
        with self.cluster.connection(database) as connection:
            connection.execute("select pg_stat_force_next_flush()")
        return self.cluster.number(database, ROW_VERSIONS)

    def wal_bytes(self, database: str) -> int:
        return self.cluster.number(database, WAL_BYTES)


def process_cpu_ns(pid: int) -> int:
    """Return the CPU time of a process's live threads, in nanoseconds."""
    total = 0
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    return total


@contextmanager
def started() -> Iterator[Server]:
    from rota.localpg import LocalPostgres

    BENCH.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="cluster-", dir=BENCH) as directory:
        os.chmod(
            directory, 0o711
        )  # root runs the server as another user, which must be able to enter
        data = Path(directory) / "pg"
        server = LocalPostgres(data, settings=GUARD_SETTINGS, database="bench")
        try:
            dsn = server.start()
            pid = int((data / "postmaster.pid").read_text().split()[0])
            yield Server(Cluster(dsn), pid)
        finally:
            server.stop()
