"""For people who start uvicorn, gunicorn or hypercorn themselves: a drain that load balancers see.

    api = FastAPI(lifespan=app.lifespan)
    api = Drain(api, app)

A server told to stop closes its sockets at once, while the load balancer still sends requests there. In
this wrapper the first SIGTERM turns readiness to 503 while the socket accepts and serves for `drain_delay`;
then the server gets the signal, requests under way are answered, jobs end or go back, and the connections
to the database are closed last. A second signal hurries.
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
from rota.web.graceful_shutdown import GracefulShutdown
from rota.web.in_flight import Asgi, InFlightRequests, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from rota.app.rota import Rota

__all__ = ["Drain"]

log = logging.getLogger("rota")

SAME_REQUEST_SECONDS = 1.0
"""Seconds within which SIGINT and SIGTERM are one wish: a terminal sends the one to every process, and the
server's parent the other on top of it."""


class Drain:
    """An ASGI application around another. `drain_delay` and `drain_timeout`, if given, are said in the
    place of ROTA_DRAIN_DELAY and ROTA_DRAIN_TIMEOUT."""

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

    @property
    def in_flight(self) -> int:
        """Requests that have not been answered yet."""
        return len(self._requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
        else:
            self._start()  # a server that was told to leave lifespans out has not told us that it began
            await self._requests.serve(self._api, scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def observed_send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._start()
            elif message["type"].startswith("lifespan.shutdown."):
                self._stop()
            await send(message)

        self._app.readiness.is_drain_managed = True
        await self._api(scope, receive, observed_send)

    def _start(self) -> None:
        """Servers listen for signals before they start an application: here it is our turn."""
        if self._shutdown is not None:
            return
        self._shutdown = GracefulShutdown(self._app, self._requests, self._signals.forward)
        self._first_signal = None
        if not self._signals.install():
            log.warning(
                "this server does not run in the main thread, which alone hears signals: nobody tells "
                "load balancers that it leaves, unless something calls app.readiness.drain()"
            )
        elif "hypercorn" in sys.modules and multiprocessing.parent_process() is not None:
            log.warning(
                "hypercorn tells its worker processes to stop by other means than a signal, so that load "
                "balancers do not see it leave: start it with --workers 0, one for each process wanted"
            )

    def _stop(self) -> None:
        if self._shutdown is not None:
            self._signals.uninstall()
            self._shutdown.cancel()
            self._shutdown = None

    def _on_signal(self, number: int) -> None:
        if self._shutdown is None:
            return
        now = time.monotonic()
        if self._first_signal is None:
            self._first_signal = (number, now)
        elif number != self._first_signal[0] and now - self._first_signal[1] < SAME_REQUEST_SECONDS:
            return
        self._shutdown.on_signal(number)
