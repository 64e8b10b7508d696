"""Locks on a server: four locked files, which need no cleanup.

    gate      control lock; exclusive and short: the holder may initialise, start or stop the server
    shared    users lock; every app that uses the server holds it shared
    watched   held by the same apps; the watcher waits for it (see `watcher`)
    watcher   exclusive: a watcher is alive

Only a holder of the control lock tries to lock `shared` exclusively, and never waits for it. The answer
"this was the last user" is therefore exact. The watcher must wait for a lock. If it waited for `shared`, it
would be in the way of an app that leaves, so it waits for a file of its own.

All locks are flocks: the kernel releases them when their holder dies, for any reason. They are closed on
exec, and in a forked child. A share belongs to the process that took it; otherwise an orphaned pool of
worker processes would keep a server running forever.
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
        """Acquire the lock if it is free."""
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
    """Hold the right to start or stop the server.

    Yield the file descriptor: a child process that inherits it holds the lock for as long as it lives, even
    if this process dies first.
    """
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
    """True if the lock is free, or becomes free within `timeout` seconds."""
    file = open_lock(path)
    try:
        return _lock_within(file, timeout)
    finally:
        os.close(file)


def _lock_within(file: int, timeout: float) -> bool:
    # Polling, because the blocking call has no timeout outside of the main thread.
    deadline = time.monotonic() + timeout
    while not try_lock(file, exclusive=True):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


class ServerShare:
    """Use of the server by one app. Acquired while holding the control lock, released by closing."""

    def __init__(self, paths: ServerPaths) -> None:
        self._paths = paths
        self._files = [open_lock(paths.users_lock), open_lock(paths.watched_lock)]
        _shares.add(self)
        for file in self._files:
            while not try_lock(file, exclusive=False):
                time.sleep(0.001)  # the watcher holds it for a moment only

    @property
    def held(self) -> bool:
        return bool(self._files)

    def release(self) -> bool:
        """Release the share while holding the control lock, and return True if it was the last one.

        `watched` is held until `close`. If this process is killed before it has stopped the server, the
        watcher stops it.
        """
        os.close(self._files.pop(0))
        return is_free(self._paths.users_lock)

    def make_inheritable(self) -> None:
        """Let the program that this process is about to exec hold the share while it runs."""
        for file in self._files:
            os.set_inheritable(file, True)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


# Module state, because Python's fork hooks belong to the process.
_shares: weakref.WeakSet[ServerShare] = weakref.WeakSet()


def _close_in_child() -> None:
    for share in list(_shares):
        share.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_child)


def holders(paths: ServerPaths) -> tuple[int, ...] | None:
    """Return the ids of the processes that use the server, or None if the system does not provide them
    (Linux does).
    """
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
