"""Who uses the server, and who may start or stop it: four locked files, and nothing to clean up.

    gate      exclusive, for moments: whoever holds it may initialise, start or stop
    shared    every app that uses the server holds it shared; exclusive is had only when nobody does
    watched   the same holders; the watcher sleeps on it (see `watch`)
    watcher   exclusive: a watcher is alive

`shared` is only ever asked for exclusively by someone who holds the gate, and never waited for, so
the answer "I was the last" is exact. The watcher has to wait somewhere, and an app that leaves
would then find the watcher in its way; so it waits on a file of its own.

All are flocks: the kernel drops them when their holder dies, however it dies. They are closed on
exec, and in a forked child: a share belongs to the process that took it, or an orphaned pool of
workers would keep a server alive for ever.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.errors import LocalPostgresError
from rota.localpg.paths import ServerPaths

if sys.platform != "win32":
    import fcntl

    def try_lock(file: int, *, exclusive: bool) -> bool:
        """Take the lock if it is free."""
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise LocalPostgresError(
                f"files cannot be locked here ({error.strerror}): "
                "choose a directory on a local disk with ROTA_LOCAL_DIR"
            ) from error
        return True


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


@contextmanager
def control_lock(paths: ServerPaths, timeout: float) -> Iterator[int]:
    """The right to start or stop the server. Yields the file, so that a child at work inside can
    hold the gate for as long as it lives, even when we do not live to see its end."""
    file = open_lock(paths.control_lock)
    try:
        if not _lock_within(file, timeout):
            raise LocalPostgresError(
                f"another process has been starting or stopping the PostgreSQL in {paths.data} for "
                f"{timeout:g} s: see {paths.log}, or end that process and try again"
            )
        yield file
    finally:
        os.close(file)


def is_free(path: Path, timeout: float = 0) -> bool:
    """Nobody holds this lock, or nobody does any more after `patience` seconds."""
    file = open_lock(path)
    try:
        return _lock_within(file, timeout)
    finally:
        os.close(file)


def _lock_within(file: int, timeout: float) -> bool:
    # Not the blocking call: it cannot be given a time limit outside the main thread.
    deadline = time.monotonic() + timeout
    while not try_lock(file, exclusive=True):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


class ServerShare:
    """One app's use of the server. Taken inside the gate, given up by closing."""

    def __init__(self, paths: ServerPaths) -> None:
        self._paths = paths
        self._files = [open_lock(paths.users_lock), open_lock(paths.watched_lock)]
        _shares.add(self)
        for file in self._files:
            while not try_lock(file, exclusive=False):
                time.sleep(0.001)  # the watcher is looking in; it never stays

    @property
    def held(self) -> bool:
        return bool(self._files)

    def release(self) -> bool:
        """Give up our use, inside the gate; was it the last one? `watched` is kept until `close`,
        so that if we are killed before the server is stopped, the watcher still gets its turn."""
        os.close(self._files.pop(0))
        return is_free(self._paths.users_lock)

    def make_inheritable(self) -> None:
        """Let the program we are about to become hold the share for as long as it runs."""
        for file in self._files:
            os.set_inheritable(file, True)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


# The one thing here that no object can own: Python's fork hooks belong to the process.
_shares: weakref.WeakSet[ServerShare] = weakref.WeakSet()


def _close_in_child() -> None:
    for share in list(_shares):
        share.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_child)


def holders(paths: ServerPaths) -> tuple[int, ...] | None:
    """The processes that use the server, where the system tells (Linux)."""
    try:
        inode = str(paths.users_lock.stat().st_ino)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    #  12: FLOCK  ADVISORY  READ 4711 fd:00:131073 0 EOF
    fields = (line.split() for line in lines)
    return tuple(
        sorted(
            int(words[4])
            for words in fields
            if words[1:4] == ["FLOCK", "ADVISORY", "READ"] and words[5].endswith(f":{inode}")
        )
    )
