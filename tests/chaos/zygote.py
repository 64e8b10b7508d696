"""Process that has all imports done and forks workers on demand, each within some milliseconds.

It has no event loop and no threads, so that a fork is safe. Orders arrive on standard input as lines of
JSON. Its answers on standard output report each start and each exit with its code. When its input ends, it
ends together with all its workers.

    {"slot": 0, "number": 3, "dsn": "…", "directory": "…", "settings": {…}, "mutant": "M7"}
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg  # noqa: F401 - imported here, so that no worker has to

from rota import Rota
from rota.app import client  # noqa: F401
from rota.engine.worker import worker  # noqa: F401
from rota.model import events
from rota.store import migrate  # noqa: F401

from . import mutants
from .app import define
from .history import History, path_of

LOOK_EVERY = 0.02
STARVED = 0.4
DIE_WITH_PARENT = 1


def main() -> None:
    alive: set[int] = set()
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], LOOK_EVERY)
        if ready:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                alive.add(_fork_worker(json.loads(line)))
        _reap_children(alive)
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _send(**said: Any) -> None:
    os.write(1, json.dumps(said).encode() + b"\n")


def _fork_worker(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _run_worker(order)
            code = 0
        except BaseException:
            logging.exception("a worker failed")
        finally:
            logging.shutdown()
            os._exit(code)
    _send(born=pid, slot=order["slot"], number=order["number"])
    return pid


def _reap_children(alive: set[int]) -> None:
    while alive:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        alive.discard(pid)
        _send(gone=pid, code=os.waitstatus_to_exitcode(status))


def _run_worker(order: dict[str, Any]) -> None:
    """Run a worker from its start to its exit."""
    with suppress(OSError):  # on other systems than Linux the zygote ends it
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    os.setpgid(0, 0)  # Ctrl-C is for the runner only
    directory = Path(order["directory"])
    who = f"{order['slot']}-{order['number']}"
    log = os.open(directory / f"{who}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(0)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr
    )
    history = History(path_of(directory, who))
    history.note("up", pid=os.getpid(), slot=order["slot"])
    if order.get("group"):
        Path(order["group"], "cgroup.procs").write_text(str(os.getpid()))
    if order.get("mutant"):
        mutants.apply(order["mutant"])
    threading.Thread(target=_note_starvation, args=[history], daemon=True).start()
    asyncio.run(_work(order, history, who))


def _note_starvation(history: History) -> None:
    """Note when this process got no processor time; a freeze has the same effect."""
    while True:
        before = time.monotonic()
        time.sleep(0.1)
        late = time.monotonic() - before - 0.1
        if late > STARVED:
            history.note("starved", seconds=late)


async def _work(order: dict[str, Any], history: History, who: str) -> None:
    app = Rota(order["dsn"], **order["settings"])
    define(app, history.note, who)
    app.subscribe(lambda event: _note(history, event))
    try:
        await app.work()
    finally:
        history.note("down")
        await app.close()


_NOTED = {
    events.WorkerStarted: "registered",
    events.WorkerStopped: "left",
    events.JobFinished: "finished",
    events.OutcomeRefused: "refused",
}


def _note(history: History, event: events.Event) -> None:
    what = _NOTED.get(type(event), type(event).__name__)
    history.note(what, **asdict(event))


if __name__ == "__main__":
    main()
