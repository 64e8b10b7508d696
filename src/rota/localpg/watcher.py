"""Watcher process: starts a server, and stops it when the last app that used it is gone.

It is a separate program, run by path with the standard library only (`python -I -S watcher.py ORDER`), so
that it starts quickly. It is the parent of the server, which has three advantages. It notices at once when
the server ends. It leaves no zombie, which under an init that does not reap would look like a running
server. If an app is killed during a start, the watcher remains in charge.

It holds `watcher` while it lives, and the control lock until the server is ready. Then it waits for
`watched`, which every app holds shared. When it gets that lock, it acquires the control lock and checks
whether an app is left, as a leaving app does. An app that arrives meanwhile waits for the control lock, and
then finds the server either running or stopped.

The next app that joins replaces a watcher that was killed. The new watcher did not start the server and
watches it from outside (`adopt`).
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

    from rota.localpg.account import ProcessUser

LOG_CHECK_SECONDS = 5.0  # interval of checks of the log's size
DETACHED_CHECK_SECONDS = 0.5  # interval of checks whether an unused server is still detached
MAX_LOG_BYTES = 4_000_000
LOG_TAIL_BYTES = 100_000
STOP_TIMEOUT_SECONDS = 60.0

WatcherEvent = Literal["ended", "unused"]


class WatcherOrder(TypedDict):
    """Order of the app to its watcher. The file descriptors `gate` and `answer` are inherited."""

    gate: int
    answer: int
    adopt: int  # a server that is already running, or 0
    command: list[str]
    identity: ProcessUser
    data: str
    run: str
    sockets: str  # a directory to remove with the server, or ""
    timeout: float


def main(order: WatcherOrder) -> None:
    watcher_fd = _open_lock(order, "watcher")
    if not _try_lock(watcher_fd):
        _report(order, "another watcher is already there")
        return
    events: SimpleQueue[WatcherEvent] = SimpleQueue()
    failure = ""
    if pid := order["adopt"]:
        _start_thread(_wait_for_adopted, pid, events)
    else:
        server = _start(order)
        pid = server.pid
        _start_thread(_wait_for_child, server, events)
        failure = _wait_until_ready(order, pid, events)
    _report(order, failure)
    if failure:
        return
    _watch(order, pid, events)
    if order["sockets"]:
        with suppress(OSError):
            os.rmdir(order["sockets"])


def _start(order: WatcherOrder) -> subprocess.Popen[bytes]:
    log = os.open(_log_path(order), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        # Own session: Ctrl-C in the app's terminal is not meant for the server.
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
        _report(order, f"{order['command'][0]} cannot be run: {error}")
        raise SystemExit(1) from error
    finally:
        os.close(log)


def _wait_until_ready(order: WatcherOrder, pid: int, events: SimpleQueue[WatcherEvent]) -> str:
    """Wait for the server and return the failure, or "" once it is ready."""
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


def _report(order: WatcherOrder, failure: str) -> None:
    """Send the result to the app and release its control lock."""
    os.close(order["gate"])
    with suppress(
        BrokenPipeError
    ):  # the app has died: with no user left, the watcher stops the server
        os.write(order["answer"], json.dumps(failure).encode())
    os.close(order["answer"])


def _watch(order: WatcherOrder, pid: int, events: SimpleQueue[WatcherEvent]) -> None:
    _start_thread(_wait_until_unused, order, events)
    detached = False
    while True:
        event: WatcherEvent | None = None
        with suppress(Empty):
            event = events.get(timeout=DETACHED_CHECK_SECONDS if detached else LOG_CHECK_SECONDS)
        if event == "ended":
            return
        _trim_log(_log_path(order))
        if event == "unused" or detached:
            detached = _is_detached(order, pid)
            if not detached and _stop_if_last(order, pid, events):
                return
            if not detached:
                _start_thread(_wait_until_unused, order, events)


def _stop_if_last(order: WatcherOrder, pid: int, events: SimpleQueue[WatcherEvent]) -> bool:
    try:
        control_fd, users_fd = _open_lock(order, "gate"), _open_lock(order, "shared")
    except FileNotFoundError:
        _stop(pid, events, signal.SIGQUIT)  # its directory is gone: no data to save
        return True
    try:
        while not _try_lock(control_fd):
            # The holder of the control lock may wait for this watcher to end, because the server has ended.
            with suppress(Empty):
                events.get(timeout=0.01)
                return True
        if not _try_lock(users_fd) or _is_detached(order, pid):
            return False  # an app has joined meanwhile
        _stop(pid, events)
        return True
    finally:
        os.close(users_fd)
        os.close(control_fd)


def _stop(pid: int, events: SimpleQueue[WatcherEvent], first_signal: int = signal.SIGINT) -> None:
    for number in (first_signal, signal.SIGQUIT):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        with suppress(Empty):
            events.get(timeout=STOP_TIMEOUT_SECONDS)
            return


def _wait_for_child(server: subprocess.Popen[bytes], events: SimpleQueue[WatcherEvent]) -> None:
    server.wait()
    events.put("ended")


def _wait_for_adopted(pid: int, events: SimpleQueue[WatcherEvent]) -> None:
    while _is_running(pid):
        time.sleep(0.05)
    events.put("ended")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            # A zombie has ended, even if its parent never reaps it.
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True  # no /proc here: rely on kill


def _wait_until_unused(order: WatcherOrder, events: SimpleQueue[WatcherEvent]) -> None:
    with suppress(FileNotFoundError):
        lock_fd = _open_lock(order, "watched")
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        os.close(lock_fd)
    events.put("unused")


def _is_detached(order: WatcherOrder, pid: int) -> bool:
    """True if `rota pg start` has marked this very server as detached."""
    with suppress(OSError), open(os.path.join(order["run"], "kept")) as mark:
        return mark.read().strip() == str(pid)
    return False


def _trim_log(log: str) -> None:
    """Limit the size of the log. The server appends, so it continues at the end of the file."""
    with suppress(OSError):
        if os.stat(log).st_size <= MAX_LOG_BYTES:
            return
        with open(log, "r+b") as file:
            file.seek(-LOG_TAIL_BYTES, os.SEEK_END)
            tail = file.read()
            file.truncate(0)
        with open(log, "ab") as file:
            file.write(tail)


def _log_path(order: WatcherOrder) -> str:
    return os.path.join(order["run"], "server.log")


def _open_lock(order: WatcherOrder, name: str) -> int:
    return os.open(os.path.join(order["run"], name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start_thread(target: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()


if __name__ == "__main__":
    # Fork: the parent process waits only for the first child, and the watcher is detached from it.
    if os.fork():
        os._exit(0)
    try:
        main(json.loads(sys.argv[1]))
    finally:
        os._exit(0)  # a thread may be blocked on a lock
