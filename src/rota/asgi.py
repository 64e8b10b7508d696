"""Graceful shutdown for an ASGI application under uvicorn, gunicorn or hypercorn.

    api = FastAPI(lifespan=app.lifespan)
    api = Drain(api, app)

A stopping server closes its sockets at once, while the load balancer still sends requests to it. With this
wrapper, SIGTERM starts these steps instead:

    1. readiness answers 503; the server still accepts and answers requests for `drain_delay`
    2. the server receives the signal and answers the requests in flight
    3. running jobs end or return to the queue
    4. the database connections are closed

A second signal shortens the steps.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rota.app.shutdown_signals import SignalHandlers
from rota.model.settings import Duration, to_seconds
from rota.web.graceful_shutdown import (
    Asgi,
    GracefulShutdown,
    InFlightRequests,
    Message,
    Receive,
    Scope,
    Send,
)

if TYPE_CHECKING:
    from rota.app.rota import Rota

__all__ = ["Drain"]

log = logging.getLogger("rota")

MANAGED = "rota.drain"
"""Key of the scope that says that a Drain further out manages the shutdown."""

SAME_REQUEST_SECONDS = 1.0
"""Seconds within which SIGINT and SIGTERM count as one request to stop. A terminal sends SIGINT to every
process, and the parent process of the server then sends SIGTERM as well."""


class Drain:
    """ASGI application that wraps another one.

    `drain_delay` and `drain_timeout`, if given, override ROTA_DRAIN_DELAY and ROTA_DRAIN_TIMEOUT.
    """

    def __init__(
        self,
        api: Asgi,
        app: Rota,
        *,
        drain_delay: Duration | None = None,
        drain_timeout: Duration | None = None,
    ) -> None:
        self._api = api
        self._app = app
        given = {"drain_delay": drain_delay, "drain_timeout": drain_timeout}
        overrides: dict[str, Any] = {
            name: to_seconds(value) for name, value in given.items() if value is not None
        }
        app.settings = replace(app.settings, **overrides)
        self._requests = InFlightRequests(app.readiness)
        self._shutdown: GracefulShutdown | None = None
        self._signals = SignalHandlers(self._on_signal)
        self._first_signal: tuple[int, float] | None = None
        self._is_serving = False

    @property
    def in_flight(self) -> int:
        """Number of requests that have not been answered yet."""
        return len(self._requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get(MANAGED):  # `rota serve` wraps an application that is wrapped already
            await self._api(scope, receive, send)
            return
        scope[MANAGED] = True
        if scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
        else:
            self._start()  # a server with lifespan disabled sends no startup message
            await self._requests.serve(self._api, scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def observed_send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._start()
            elif message["type"].startswith("lifespan.shutdown."):
                self._stop()
            await send(message)

        self._app.readiness.is_drain_managed = True
        self._hold_signals()
        try:
            await self._api(scope, receive, observed_send)
        finally:
            self._stop()

    def _start(self) -> None:
        """Begin to serve requests. Repeated calls have no effect."""
        self._hold_signals()
        self._is_serving = True

    def _hold_signals(self) -> None:
        """Install the signal handlers, once. Servers install theirs before they start the application, so
        these replace them."""
        if self._shutdown is not None:
            return
        self._shutdown = GracefulShutdown(
            self._app, self._requests, self._signals.forward, lambda: self._is_serving
        )
        self._first_signal = None
        if not self._signals.install():
            log.warning(
                "this server does not run in the main thread and receives no signals: load balancers are "
                "not notified of a shutdown; call app.readiness.drain() before it"
            )
        elif "hypercorn" in sys.modules and multiprocessing.parent_process() is not None:
            log.warning(
                "hypercorn stops its worker processes without a signal, so load balancers are not "
                "notified of a shutdown; start it with --workers 0, once for each process you need"
            )

    def _stop(self) -> None:
        if self._shutdown is not None:
            self._signals.uninstall()
            self._shutdown.cancel()
            self._shutdown = None
            self._is_serving = False

    def _on_signal(self, number: int) -> None:
        if self._shutdown is None:
            return
        now = time.monotonic()
        if self._first_signal is None:
            self._first_signal = (number, now)
        elif number != self._first_signal[0] and now - self._first_signal[1] < SAME_REQUEST_SECONDS:
            return
        self._shutdown.on_signal(number)
