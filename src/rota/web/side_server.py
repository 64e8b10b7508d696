"""An ASGI app on a port of its own, inside an event loop that does something else: a worker's, a server's.

Signals are left to whoever owns the loop. The port answers until the block ends,
also while the rest drains.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from rota.web.connection_limit import LimitedProtocol

log = logging.getLogger("rota")

STOP_TIMEOUT_SECONDS = 2.0
"""Seconds in which answers under way may end."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(asgi: ASGIApp, bound: socket.socket, prefix: str = "") -> AsyncIterator[None]:
    """Serve it on a socket that is bound, for as long as the block lasts. `prefix`: where a proxy has it,
    which takes that off the paths it passes on."""
    server = _Server(
        uvicorn.Config(
            asgi,
            http=LimitedProtocol,
            lifespan="off",
            root_path=prefix,
            log_config=None,
            access_log=False,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[bound]), name="rota port")
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait([task], timeout=STOP_TIMEOUT_SECONDS)
        if not task.done():
            task.cancel()
        bound.close()
