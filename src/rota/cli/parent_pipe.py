"""Socket pair between a supervising parent and its child process.

The child sends one byte when it is up, and one before it exits if it was drained. Nothing else is sent:
the closed socket is the signal. The kernel closes the parent's end however the parent dies, SIGKILL
included, so no child is left behind.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress

import rich_click as click

UP = b"+"
DRAINED = b"-"


class ParentPipe:
    """Child's end of the socket pair.

    If the parent is gone, the child drains as after SIGTERM. If it has not ended `kill_after_seconds`
    later, it exits at once.
    """

    kill_after_seconds = 60.0

    def __init__(self, descriptor: int) -> None:
        # Processes that this worker starts must not inherit it.
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


# The pipe is opened with the command line, before the app is imported: the import may take long, and the
# parent may die meanwhile.
parent_pipe_option = click.option(
    "--parent-pipe",
    "pipe",
    type=int,
    hidden=True,
    callback=lambda context, option, value: None if value is None else ParentPipe(value),
)
