"""Servers on uvicorn.

`serve` runs an API until a signal, with the graceful shutdown of `rota.asgi.Drain`. `serving` answers on a
port of its own in an event loop that also runs a worker or another server; the owner of the loop handles
the signals.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import uvicorn

from rota.app.shutdown_signals import handle_signals
from rota.asgi import Drain
from rota.errors import RotaError
from rota.web.connection_limit import LimitedProtocol
from rota.web.graceful_shutdown import Asgi, Message, Receive, Scope, Send
from rota.web.listen import BACKLOG

if TYPE_CHECKING:
    from rota.app.rota import Rota

log = logging.getLogger("rota")

KEEP_ALIVE_SECONDS = 75
"""Timeout of an idle connection.

It is longer than that of common load balancers, so that the load balancer closes the connection. If the
server closed it first, a request could arrive on a connection that is being closed.
"""


STOP_TIMEOUT_SECONDS = 2.0
"""Time that requests in flight on a port of its own get at the end of the block."""


async def serve(
    api: Asgi,
    app: Rota,
    sockets: Sequence[socket.socket],
    on_started: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT and the graceful shutdown. Raise the error of a failed startup."""
    reporting_api = _StartupReportingApi(api, app)
    config = uvicorn.Config(
        Drain(reporting_api, app),
        http=LimitedProtocol,
        lifespan="on",
        log_config=None,
        access_log=log.isEnabledFor(logging.DEBUG),
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        # A client that does not read keeps its connection open forever, even after its request was
        # cancelled.
        timeout_graceful_shutdown=max(1, math.ceil(app.settings.drain_timeout)),
    )
    try:
        await _Server(config, on_started).serve(list(sockets))
    except SystemExit:
        if reporting_api.startup_error is not None:
            raise reporting_api.startup_error from None
        raise
    finally:
        await app.close()  # done already, unless the API does not use app.lifespan


@asynccontextmanager
async def serving(api: Asgi, bound: socket.socket, prefix: str = "") -> AsyncIterator[None]:
    """Serve `api` on a bound socket for as long as the block runs, also while a worker drains in it.

    `prefix` is the path under which a proxy publishes the app; the proxy strips it from forwarded paths.
    """
    server = _SideServer(
        uvicorn.Config(
            api,
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


class _SideServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own handler would raise the signal again at the end, and the exit code would not be 0.
        with handle_signals(self._on_signal):
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    def _on_signal(self, number: int) -> None:
        self.should_exit = True


class _StartupReportingApi:
    """The API with the error of a failed startup kept."""

    def __init__(self, api: Asgi, app: Rota) -> None:
        self._api = api
        self._app = app
        self.startup_error: BaseException | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
        else:
            await self._api(scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        held_back: list[Message] = []
        has_received = started = False

        async def tracked_receive() -> Message:
            nonlocal has_received
            has_received = True
            return await receive()

        async def tracked_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "lifespan.startup.failed":
                held_back.append(message)  # the exception, raised next, is more precise
                return
            if message["type"] == "lifespan.startup.complete":
                started = True
                self._warn_if_app_not_started()
            await send(message)

        try:
            await self._api(scope, tracked_receive, tracked_send)
        except Exception as error:
            if started:
                raise
            if not has_received:
                await self._skip_lifespan(receive, tracked_send)
                return
            self.startup_error = error
            # The caller of serve() prints a RotaError as one line; any other error is the API's and gets a
            # traceback.
            is_rota_error = isinstance(error, RotaError)
            text = "" if is_rota_error else "".join(traceback.format_exception(error))
            await send({"type": "lifespan.startup.failed", "message": text})
        else:
            for message in held_back:
                await send(message)

    async def _skip_lifespan(self, receive: Receive, send: Send) -> None:
        """Answer the lifespan messages for an API that does not support them."""
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _warn_if_app_not_started(self) -> None:
        if not self._app.readiness.has_lifespan:
            log.warning(
                "this API does not start its Rota app: no job is run here; write "
                "FastAPI(lifespan=app.lifespan), or app.lifespan.options(worker=False) if that is meant"
            )
