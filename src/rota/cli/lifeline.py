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


class Lifeline:
    """The child's end. A worker whose parent is gone drains as if it had been told to; one that has
    not ended `patience` seconds later is ended."""

    patience = 60.0

    def __init__(self, descriptor: int) -> None:
        # What this worker starts must not hold on to it.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        threading.Thread(target=self._watch, name="rota lifeline", daemon=True).start()

    def say_up(self) -> None:
        self._say(UP)

    def say_drained(self) -> None:
        self._say(DRAINED)

    def _say(self, word: bytes) -> None:
        with suppress(OSError):
            self._socket.send(word)

    def _watch(self) -> None:
        with suppress(OSError):
            self._socket.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self.patience)
        os._exit(1)
