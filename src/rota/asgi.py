"""For people who start uvicorn, gunicorn or hypercorn themselves: a drain that load balancers see.

    api = FastAPI(lifespan=app.lifespan)
    api = Drain(api, app)

A server told to stop closes its sockets at once, while the load balancer still sends requests there. In
this wrapper the first SIGTERM turns readiness to 503 while the socket accepts and serves for `lb_delay`;
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

from rota.model.settings import Duration, seconds
from rota.web.departure import Departure
from rota.web.requests import Asgi, Message, Receive, Requests, Scope, Send
from rota.web.signals import Signals

if TYPE_CHECKING:
    from rota.app.rota import Rota

__all__ = ["Drain"]

log = logging.getLogger("rota")

TOGETHER = 1.0
"""Seconds within which SIGINT and SIGTERM are one wish: a terminal sends the one to every process, and the
server's parent the other on top of it."""


class Drain:
    """An ASGI application around another. `lb_delay` and `grace`, if given, are said in the place of
    ROTA_LB_DELAY and ROTA_DRAIN_FOR."""

    def __init__(
        self,
        api: Asgi,
        app: Rota,
        *,
        lb_delay: Duration | None = None,
        grace: Duration | None = None,
    ) -> None:
        self._api = api
        self._app = app
        given = {"lb_delay": lb_delay, "drain_for": grace}
        said: dict[str, Any] = {
            name: seconds(value) for name, value in given.items() if value is not None
        }
        app.settings = replace(app.settings, **said)
        self._requests = Requests(app.readiness)
        self._departure: Departure | None = None
        self._signals = Signals(self._hear)
        self._first: tuple[int, float] | None = None

    @property
    def under_way(self) -> int:
        """Requests that have not been answered yet."""
        return len(self._requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        else:
            self._begin()  # a server that was told to leave lifespans out has not told us that it began
            await self._requests.serve(self._api, scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._begin()
            elif message["type"].startswith("lifespan.shutdown."):
                self._end()
            await send(message)

        self._app.readiness.conducted = True
        await self._api(scope, receive, sent)

    def _begin(self) -> None:
        """Servers listen for signals before they start an application: here it is our turn."""
        if self._departure is not None:
            return
        self._departure = Departure(self._app, self._requests, self._signals.pass_on)
        self._first = None
        if not self._signals.take():
            log.warning(
                "this server does not run in the main thread, which alone hears signals: nobody tells "
                "load balancers that it leaves, unless something calls app.readiness.drain()"
            )
        elif "hypercorn" in sys.modules and multiprocessing.parent_process() is not None:
            log.warning(
                "hypercorn tells its worker processes to stop by other means than a signal, so that load "
                "balancers do not see it leave: start it with --workers 0, one for each process wanted"
            )

    def _end(self) -> None:
        if self._departure is not None:
            self._signals.give_back()
            self._departure.end()
            self._departure = None

    def _hear(self, number: int) -> None:
        if self._departure is None:
            return
        now = time.monotonic()
        if self._first is None:
            self._first = (number, now)
        elif number != self._first[0] and now - self._first[1] < TOGETHER:
            return
        self._departure.hear(number)
