"""Start of a server and of its watcher.

Two failures are retried: processes of a killed server that still hold its shared memory, and a TCP port
that another process took in the meantime. Any other failure is raised with the last lines of the log.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rota.errors import LocalPostgresError
from rota.localpg import account, locks, postmaster
from rota.localpg.account import ServerAccount
from rota.localpg.binaries import Binaries
from rota.localpg.data_directory import server_environment
from rota.localpg.paths import ServerPaths, socket_directory
from rota.localpg.postmaster import Postmaster
from rota.localpg.profiles import DEFAULT_PORT, required_settings

if TYPE_CHECKING:
    from rota.localpg.watcher import WatcherOrder

WATCHER_SCRIPT = Path(__file__).with_name("watcher.py")
START_TIMEOUT_SECONDS = 180.0  # crash recovery of a large directory is slow
WATCHER_TIMEOUT_SECONDS = 10.0
ORPHAN_TIMEOUT_SECONDS = 2.0
LOG_TAIL_LINES = 15


def launch(
    paths: ServerPaths,
    binaries: Binaries,
    user: ServerAccount,
    requested_settings: list[str],
    control_fd: int,
    *,
    listen: bool,
) -> None:
    """Start the server of an initialised directory. The caller holds the control lock."""
    if not locks.is_free(paths.watcher_lock, WATCHER_TIMEOUT_SECONDS):
        raise LocalPostgresError(
            f"{paths.data} is in use by a PostgreSQL that cannot be seen from here, "
            "in another container perhaps: give each its own directory with ROTA_LOCAL_DIR"
        )
    account.chown_tree(paths.data, user)
    socket_dir = socket_directory(paths.data, user)
    postmaster.remove_stale_files(paths.data, socket_dir)
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    orphan_deadline = time.monotonic() + ORPHAN_TIMEOUT_SECONDS
    while True:
        port = _free_port() if listen else DEFAULT_PORT
        options = [*requested_settings, *required_settings(socket_dir, port, listen=listen)]
        command = user.command(binaries.program("postgres"), "-D", paths.data)
        command += [word for option in options for word in ("-c", option)]
        log_start = _file_size(paths.log)
        failure = _start_watcher(paths, user, control_fd, command=command, socket_dir=socket_dir)
        if not failure:
            return
        log_text = _read_from(paths.log, log_start)
        if "shared memory block" in log_text and "still in use" in log_text:
            _wait_for_orphans(paths.data, terminate=time.monotonic() > orphan_deadline)
        elif not (listen and "Address already in use" in log_text):
            break
        if time.monotonic() > deadline:
            break
    last = "\n".join(log_text.splitlines()[-LOG_TAIL_LINES:])
    raise LocalPostgresError(
        f"PostgreSQL in {paths.data} did not start: {failure}; {paths.log} says:\n{last}"
    )


def attach_watcher(
    paths: ServerPaths, server: Postmaster, user: ServerAccount, control_fd: int
) -> None:
    """Start a new watcher for a server that has lost its own."""
    if failure := _start_watcher(
        paths, user, control_fd, adopted_pid=server.pid, socket_dir=server.socket_dir
    ):
        raise LocalPostgresError(f"the PostgreSQL in {paths.data} cannot be watched: {failure}")


def _start_watcher(
    paths: ServerPaths,
    user: ServerAccount,
    control_fd: int,
    *,
    socket_dir: Path,
    adopted_pid: int = 0,
    command: list[str] | None = None,
) -> str:
    """Start a watcher and return its failure, or "" on success."""
    python = _find_python()
    read_fd, write_fd = os.pipe()
    try:
        order: WatcherOrder = {
            "gate": control_fd,
            "answer": write_fd,
            "adopt": adopted_pid,
            "command": command or [],
            "identity": user.process_user(),
            "data": str(paths.data),
            "run": str(paths.run_directory),
            "sockets": "" if socket_dir == paths.data else str(socket_dir),
            "timeout": START_TIMEOUT_SECONDS,
        }
        with paths.log.open("ab") as log:
            subprocess.run(
                [python, "-I", "-S", str(WATCHER_SCRIPT), json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env=server_environment(),
                pass_fds=(control_fd, write_fd),
                start_new_session=True,
                check=False,
            )
        os.close(write_fd)
        write_fd = -1
        with open(read_fd, closefd=False) as pipe:
            text = pipe.read()
    finally:
        os.close(read_fd)
        if write_fd >= 0:
            os.close(write_fd)
    return str(json.loads(text)) if text else f"its watcher, {python}, ended without a word"


def _find_python() -> str:
    # In a frozen app or an application server, sys.executable is that program.
    if Path(sys.executable or "").name.startswith(("python", "pypy")):
        return sys.executable
    found = shutil.which("python3")
    if not found:
        raise LocalPostgresError(
            "no Python interpreter was found to watch over PostgreSQL: put python3 on the PATH"
        )
    return found


def _wait_for_orphans(data: Path, *, terminate: bool) -> None:
    """Wait for orphaned server processes, which notice the loss of their postmaster; `terminate` the busy
    ones.
    """
    if terminate:
        for pid in postmaster.find_orphans(data):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _file_size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _read_from(log: Path, start: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
