"""Server for an ASGI app on its own port, in an event loop that also runs a worker or another server.

The owner of the loop handles the signals. The port answers until the block ends, also while the worker
drains.
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
"""Time that requests in flight get at the end of the block."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(asgi: ASGIApp, bound: socket.socket, prefix: str = "") -> AsyncIterator[None]:
    """Serve `asgi` on a bound socket for as long as the block runs.

    `prefix` is the path under which a proxy publishes the app; the proxy strips it from forwarded paths.
    """
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
