"""A running server, and a watcher over it.

Two failures of a start are not the app's business: processes of a killed server that still hold
its shared memory, which go away, and a free TCP port that somebody took a moment before us. Any
other failure is told with the last lines of the log.
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
from rota.localpg.account import Account
from rota.localpg.binaries import Binaries
from rota.localpg.cluster import environment
from rota.localpg.places import Place, socket_directory
from rota.localpg.postmaster import Postmaster
from rota.localpg.profiles import DEFAULT_PORT, needs

if TYPE_CHECKING:
    from rota.localpg.watch import Order

WATCH = Path(__file__).with_name("watch.py")
START_TIMEOUT = 180.0  # recovery of a big directory after a crash takes its time
WATCHER_PATIENCE = 10.0
ORPHAN_PATIENCE = 2.0
LAST_LINES = 15


def launch(
    place: Place, binaries: Binaries, user: Account, wishes: list[str], gate: int, *, listen: bool
) -> None:
    """Start the server of an initialised directory. Inside the gate only."""
    if not locks.is_free(place.watcher, WATCHER_PATIENCE):
        raise LocalPostgresError(
            f"{place.data} is in use by a PostgreSQL that cannot be seen from here, "
            "in another container perhaps: give each its own directory with ROTA_LOCAL_DIR"
        )
    account.hand_over(place.data, user)
    sockets = socket_directory(place.data, user)
    postmaster.remove_stale_files(place.data, sockets)
    deadline = time.monotonic() + START_TIMEOUT
    patience = time.monotonic() + ORPHAN_PATIENCE
    while True:
        port = _free_port() if listen else DEFAULT_PORT
        options = [*wishes, *needs(sockets, port, listen=listen)]
        command = user.command(binaries.program("postgres"), "-D", place.data)
        command += [word for option in options for word in ("-c", option)]
        begin = _size(place.log)
        failure = _order(place, user, gate, command=command, sockets=sockets)
        if not failure:
            return
        said = _said_since(place.log, begin)
        if "shared memory block" in said and "still in use" in said:
            _wait_for_orphans(place.data, terminate=time.monotonic() > patience)
        elif not (listen and "Address already in use" in said):
            break
        if time.monotonic() > deadline:
            break
    last = "\n".join(said.splitlines()[-LAST_LINES:])
    raise LocalPostgresError(
        f"PostgreSQL in {place.data} did not start: {failure}; {place.log} says:\n{last}"
    )


def adopt(place: Place, server: Postmaster, user: Account, gate: int) -> None:
    """Put a new watcher over a server that lost its own."""
    if failure := _order(place, user, gate, adopt=server.pid, sockets=server.sockets):
        raise LocalPostgresError(f"the PostgreSQL in {place.data} cannot be watched: {failure}")


def _order(
    place: Place,
    user: Account,
    gate: int,
    *,
    sockets: Path,
    adopt: int = 0,
    command: list[str] | None = None,
) -> str:
    """Start a watcher and hear how it went: what failed, or nothing."""
    python = _python()
    hear, answer = os.pipe()
    try:
        order: Order = {
            "gate": gate,
            "answer": answer,
            "adopt": adopt,
            "command": command or [],
            "identity": user.identity(),
            "data": str(place.data),
            "run": str(place.run),
            "sockets": "" if sockets == place.data else str(sockets),
            "timeout": START_TIMEOUT,
        }
        with place.log.open("ab") as log:
            subprocess.run(
                [python, "-I", "-S", str(WATCH), json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env=environment(),
                pass_fds=(gate, answer),
                start_new_session=True,
                check=False,
            )
        os.close(answer)
        answer = -1
        with open(hear, closefd=False) as told:
            text = told.read()
    finally:
        os.close(hear)
        if answer >= 0:
            os.close(answer)
    return str(json.loads(text)) if text else f"its watcher, {python}, ended without a word"


def _python() -> str:
    # Inside a frozen app or an application server, sys.executable is that program.
    if Path(sys.executable or "").name.startswith(("python", "pypy")):
        return sys.executable
    found = shutil.which("python3")
    if not found:
        raise LocalPostgresError(
            "no Python interpreter was found to watch over PostgreSQL: put python3 on the PATH"
        )
    return found


def _wait_for_orphans(data: Path, *, terminate: bool) -> None:
    """They notice by themselves that their postmaster is gone; those too busy for it are told."""
    if terminate:
        for pid in postmaster.orphans(data):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _said_since(log: Path, begin: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(begin)
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
