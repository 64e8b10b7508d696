"""State of a running server, as recorded in `postmaster.pid` in its data directory.

A `Postmaster` is returned only for a live process that serves this directory. After a crash the file
remains, and its process id may belong to another process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rota.errors import LocalPostgresError

CLUSTER_NAME_OPTION = "cluster_name=rota"  # marks a server started by Rota
STOP_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Postmaster:
    data: Path
    pid: int
    port: int = 0
    socket_dir: Path = Path()
    has_tcp: bool = False
    is_ready: bool = False

    @property
    def started_by_rota(self) -> bool:
        """True if Rota started the server. Rota stops no other server."""
        return f'"{CLUSTER_NAME_OPTION}"' in self.options

    @property
    def options(self) -> str:
        try:
            return (self.data / "postmaster.opts").read_text()
        except OSError:
            return ""

    @property
    def is_alive(self) -> bool:
        return is_serving(self.pid, self.data)

    def stop(self, *, immediately: bool = False) -> None:
        """Stop the server: clients are disconnected, and committed data is on disk.

        With `immediately` it stops as in a crash, and the next start runs recovery.
        """
        self.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
        if not self.wait_stopped(STOP_TIMEOUT_SECONDS):
            self.send_signal(signal.SIGQUIT)
            if not self.wait_stopped(STOP_TIMEOUT_SECONDS):
                raise LocalPostgresError(
                    f"PostgreSQL (process {self.pid}) in {self.data} does not stop: end it by hand"
                )

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait_stopped(STOP_TIMEOUT_SECONDS)

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait_stopped(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True


def read(data: Path) -> Postmaster | None:
    """Return the server of this data directory, or None if none is running."""
    lines = _read_lines(data / "postmaster.pid")
    # pid, directory, start time, port, socket directory, listen address, shared memory, status: written
    # line by line while the server starts.
    if not lines or not lines[0].isdigit() or not is_serving(pid := int(lines[0]), data):
        return None
    if len(lines) < 8:
        return Postmaster(data, pid)
    return Postmaster(
        data,
        pid,
        port=int(lines[3]),
        socket_dir=Path(lines[4]),
        has_tcp=bool(lines[5].strip()),
        is_ready=lines[7].strip() == "ready",
    )


def wait_ready_or_gone(data: Path, timeout: float) -> Postmaster | None:
    """Return the server, or None, after waiting for a server that is starting or stopping."""
    deadline = time.monotonic() + timeout
    while (server := read(data)) and not server.is_ready:
        if time.monotonic() > deadline:
            raise LocalPostgresError(
                f"PostgreSQL (process {server.pid}) in {data} has been neither ready nor gone "
                f"for {timeout:g} s: look into its log, or end it by hand"
            )
        time.sleep(0.005)
    return server


def remove_stale_files(data: Path, socket_dir: Path) -> None:
    """Remove lock files of a dead server that PostgreSQL itself would not recognise as stale.

    That is the case if the process id was reused (common in containers, where ids start over) or belongs to
    a zombie.
    """
    if read(data):
        return
    for file in (data / "postmaster.pid", *socket_dir.glob(".s.PGSQL.*.lock")):
        lines = _read_lines(file)
        if lines and lines[0].isdigit() and _process_exists(int(lines[0])):
            file.unlink(missing_ok=True)


def is_serving(pid: int, data: Path) -> bool:
    """True if this process is alive and is a PostgreSQL that works in `data`."""
    if sys.platform == "linux":
        try:
            return os.path.samestat(os.stat(f"/proc/{pid}/cwd"), os.stat(data))
        except OSError:
            return False  # no such process, a zombie, or of another user
    output = subprocess.run(
        ["ps", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return "postgres" in output and not output.startswith("Z")


def find_orphans(data: Path) -> list[int]:
    """Return server processes that outlived their postmaster and still hold its shared memory (Linux)."""
    pids = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if is_serving(pid, data) and _program_name(pid) == "postgres"]


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _program_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
