"""Between a parent and a worker process of its own: one pair of sockets.

The child says once that it is up, and once, if that is why it leaves, that somebody has drained it. Nothing
else is ever sent: the other end closing is the news. The kernel closes the parent's end however the parent
dies, SIGKILL included, so no worker is left over.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress

UP = b"+"
DRAINED = b"-"


class ParentPipe:
    """The child's end. A worker whose parent is gone drains as if it had been told to; one that has
    not ended `patience` seconds later is ended."""

    kill_after_seconds = 60.0

    def __init__(self, descriptor: int) -> None:
        # What this worker starts must not hold on to it.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        threading.Thread(target=self._watch_parent, name="rota parent pipe", daemon=True).start()

    def report_up(self) -> None:
        self._send(UP)

    def report_drained(self) -> None:
        self._send(DRAINED)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):
            self._socket.send(message)

    def _watch_parent(self) -> None:
        with suppress(OSError):
            self._socket.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self.kill_after_seconds)
        os._exit(1)
