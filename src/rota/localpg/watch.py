"""The watcher: starts a server, and stops it when the last app that used it is gone.

It is a program of its own, run by path with the standard library alone (`python -I -S watch.py
ORDER`), so it starts in a blink whatever Rota imports. It is the server's parent. That makes three
things simple: it knows at once when the server ends, it leaves no zombie that would pass for a
running server under an init that does not reap, and an app that is killed halfway through a start
leaves somebody in charge.

It holds `watcher` while it lives, and the gate until the server is ready. Then it sleeps on
`watched`, which every app holds shared. When it wakes up, it takes the gate and asks whether
anybody is left, as a leaving app does; an app that arrives meanwhile waits at the gate and then
finds the server running or gone, never halfway.

A watcher that was killed is replaced by the next app that joins; that one did not start the server
and watches it from outside (`adopt`).
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.localpg.account import Identity

LOOK_EVERY = 5.0  # at the size of the log
LOOK_AGAIN = 0.5  # whether a server that nobody uses is still meant to be kept
LOG_LIMIT = 4_000_000
LOG_TAIL = 100_000
STOP_PATIENCE = 60.0

Event = Literal["ended", "nobody"]


class Order(TypedDict):
    """What the app asks of its watcher. The files `gate` and `answer` come open."""

    gate: int
    answer: int
    adopt: int  # a server that is already running, or 0
    command: list[str]
    identity: Identity
    data: str
    run: str
    sockets: str  # a directory to remove with the server, or ""
    timeout: float


def main(order: Order) -> None:
    hold = _open(order, "watcher")
    if not _lock(hold):
        _answer(order, "another watcher is already there")
        return
    events: SimpleQueue[Event] = SimpleQueue()
    failure = ""
    if pid := order["adopt"]:
        _in_background(_wait_for_stranger, pid, events)
    else:
        server = _start(order)
        pid = server.pid
        _in_background(_wait_for_child, server, events)
        failure = _wait_until_ready(order, pid, events)
    _answer(order, failure)
    if failure:
        return
    _watch(order, pid, events)
    if order["sockets"]:
        with suppress(OSError):
            os.rmdir(order["sockets"])


def _start(order: Order) -> subprocess.Popen[bytes]:
    log = os.open(_log(order), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        # A session of its own: Ctrl-C in the app's terminal is not meant for the server.
        return subprocess.Popen(
            order["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            **order["identity"],
        )
    except OSError as error:
        _answer(order, f"{order['command'][0]} cannot be run: {error}")
        raise SystemExit(1) from error
    finally:
        os.close(log)


def _wait_until_ready(order: Order, pid: int, events: SimpleQueue[Event]) -> str:
    """What went wrong, or nothing."""
    deadline = time.monotonic() + order["timeout"]
    while time.monotonic() < deadline:
        with suppress(Empty):
            events.get(timeout=0.005)
            return "it ended while starting"
        with suppress(OSError), open(os.path.join(order["data"], "postmaster.pid")) as file:
            lines = file.read().splitlines()
            if lines[:1] == [str(pid)] and lines[7:] and lines[7].strip() == "ready":
                return ""
    _stop(pid, events)
    return f"it was not ready after {order['timeout']:g} s"


def _answer(order: Order, failure: str) -> None:
    """Tell the app, and let go of its gate."""
    os.close(order["gate"])
    with suppress(
        BrokenPipeError
    ):  # it did not live to hear it; then nobody shares, and we stop the server
        os.write(order["answer"], json.dumps(failure).encode())
    os.close(order["answer"])


def _watch(order: Order, pid: int, events: SimpleQueue[Event]) -> None:
    _in_background(_wait_for_nobody, order, events)
    kept = False
    while True:
        event: Event | None = None
        with suppress(Empty):
            event = events.get(timeout=LOOK_AGAIN if kept else LOOK_EVERY)
        if event == "ended":
            return
        _trim(_log(order))
        if event == "nobody" or kept:
            kept = _kept(order, pid)
            if not kept and _stop_if_last(order, pid, events):
                return
            if not kept:
                _in_background(_wait_for_nobody, order, events)


def _stop_if_last(order: Order, pid: int, events: SimpleQueue[Event]) -> bool:
    try:
        gate, shared = _open(order, "gate"), _open(order, "shared")
    except FileNotFoundError:
        _stop(pid, events, signal.SIGQUIT)  # its directory is gone: there is nothing to save
        return True
    try:
        while not _lock(gate):
            # Whoever has the gate may be waiting for us to go, because the server has ended.
            with suppress(Empty):
                events.get(timeout=0.01)
                return True
        if not _lock(shared) or _kept(order, pid):
            return False  # somebody came in while we were waking up
        _stop(pid, events)
        return True
    finally:
        os.close(shared)
        os.close(gate)


def _stop(pid: int, events: SimpleQueue[Event], first: int = signal.SIGINT) -> None:
    for how in (first, signal.SIGQUIT):
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        with suppress(Empty):
            events.get(timeout=STOP_PATIENCE)
            return


def _wait_for_child(server: subprocess.Popen[bytes], events: SimpleQueue[Event]) -> None:
    server.wait()
    events.put("ended")


def _wait_for_stranger(pid: int, events: SimpleQueue[Event]) -> None:
    while _runs(pid):
        time.sleep(0.05)
    events.put("ended")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            # A zombie has ended, even if whoever should reap it never does.
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True  # no /proc here: take the system's word


def _wait_for_nobody(order: Order, events: SimpleQueue[Event]) -> None:
    with suppress(FileNotFoundError):
        watched = _open(order, "watched")
        fcntl.flock(watched, fcntl.LOCK_EX)
        os.close(watched)
    events.put("nobody")


def _kept(order: Order, pid: int) -> bool:
    """`rota pg start` left its mark on this very server."""
    with suppress(OSError), open(os.path.join(order["run"], "kept")) as mark:
        return mark.read().strip() == str(pid)
    return False


def _trim(log: str) -> None:
    """Keep the log from filling the disk. The server appends, so it goes on where the file ends."""
    with suppress(OSError):
        if os.stat(log).st_size <= LOG_LIMIT:
            return
        with open(log, "r+b") as file:
            file.seek(-LOG_TAIL, os.SEEK_END)
            tail = file.read()
            file.truncate(0)
        with open(log, "ab") as file:
            file.write(tail)


def _log(order: Order) -> str:
    return os.path.join(order["run"], "server.log")


def _open(order: Order, name: str) -> int:
    return os.open(os.path.join(order["run"], name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _in_background(work: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()


if __name__ == "__main__":
    # Our parent waits for us and goes on; its grandchild is nobody's to wait for.
    if os.fork():
        os._exit(0)
    try:
        main(json.loads(sys.argv[1]))
    finally:
        os._exit(0)  # a thread may be asleep on a lock
