"""An API on uvicorn, stopped by us: it leaves as `rota.asgi.Drain` does.

Signals are ours from the start. One that comes while the API still starts is obeyed when it has: what has
begun is ended in order.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from rota.errors import RotaError
from rota.web.connection_limit import LimitedProtocol
from rota.web.departure import Departure
from rota.web.requests import Asgi, Message, Receive, Requests, Scope, Send

if TYPE_CHECKING:
    from rota.app.rota import Rota

log = logging.getLogger("rota")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
BACKLOG = 2048
KEEP_ALIVE = 75
"""Seconds for which an idle connection is kept: longer than load balancers do, so that it is they who hang
up. The other way round a request may meet a connection that is just being closed."""


async def serve(
    api: Asgi,
    app: Rota,
    sockets: Sequence[socket.socket],
    when_up: Callable[[], None] = lambda: None,
) -> None:
    """Until SIGTERM or SIGINT, and then until all is done. Raises what kept the API from starting."""
    app.readiness.conducted = True
    requests = Requests(app.readiness)
    guarded = _Api(api, app, requests)
    config = uvicorn.Config(
        guarded,
        http=LimitedProtocol,
        lifespan="on",
        log_config=None,
        access_log=log.isEnabledFor(logging.DEBUG),
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        # A client that reads nothing keeps its connection open for ever, though its request was cut off.
        timeout_graceful_shutdown=max(1, math.ceil(app.settings.drain_for)),
    )
    server = _Server(config, when_up)
    departure = Departure(app, requests, server.stop)

    early = False

    def hear(number: int) -> None:
        nonlocal early
        if early:
            app.readiness.hurry()
        elif server.started:
            departure.hear(number)
        else:
            early = True
            server.stop(number)

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, hear, number)
    try:
        await server.serve(list(sockets))
    except SystemExit:
        if guarded.failure is not None:
            raise guarded.failure from None
        raise
    finally:
        departure.end()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        await app.close()  # done already, unless the API does without app.lifespan


def bind(host: str, port: int) -> socket.socket:
    """A socket there, to be shared by any number of processes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.listen(BACKLOG)
    bound.set_inheritable(True)
    return bound


def address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, when_up: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_up = when_up

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are ours

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._when_up()

    def stop(self, number: int) -> None:
        self.should_exit = True


class _Api:
    """The API, its requests counted, and what keeps it from starting kept."""

    def __init__(self, api: Asgi, app: Rota, requests: Requests) -> None:
        self._api = api
        self._app = app
        self._requests = requests
        self.failure: BaseException | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        else:
            await self._requests.serve(self._api, scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        unsent: list[Message] = []
        listened = started = False

        async def received() -> Message:
            nonlocal listened
            listened = True
            return await receive()

        async def sent(message: Message) -> None:
            nonlocal started
            if message["type"] == "lifespan.startup.failed":
                unsent.append(message)  # the error itself says it better, and comes next
                return
            if message["type"] == "lifespan.startup.complete":
                started = True
                self._see_whether_it_lives()
            await send(message)

        try:
            await self._api(scope, received, sent)
        except Exception as error:
            if started:
                raise
            if not listened:
                await self._live_without(receive, sent)
                return
            self.failure = error
            # One of ours is told in a line, by whoever called us; any other is the API's own.
            ours = isinstance(error, RotaError)
            text = "" if ours else "".join(traceback.format_exception(error))
            await send({"type": "lifespan.startup.failed", "message": text})
        else:
            for message in unsent:
                await send(message)

    async def _live_without(self, receive: Receive, send: Send) -> None:
        """For an API that knows of no lifespan."""
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _see_whether_it_lives(self) -> None:
        if not self._app.readiness.alive:
            log.warning(
                "this API does not start its Rota app: no job is run here; write "
                "FastAPI(lifespan=app.lifespan), or app.lifespan.using(worker=False) if that is meant"
            )
