"""Graceful shutdown of a web process: from the first signal until the server has stopped.

first signal ─▶ /health/ready fails ─▶ serve for drain_delay ─▶ stop the server ─▶ finish requests
                                               │                                          │
second signal ─────────────────────────────────┴─▶ stop now                               └─▶ cancel

A signal before the server serves requests stops it at once. It takes effect when the startup is complete,
so that everything that was started is also shut down.

While the process drains, each response closes its connection. A client with a keep-alive connection gets no
response if it sends a request just as the server closes the connection. With `Connection: close`, sent
while the socket still accepts, the client opens a new connection, which a load balancer routes to another
instance.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from rota.app.readiness import Readiness
    from rota.app.rota import Rota

log = logging.getLogger("rota")

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

CLOSE_HEADER = (b"connection", b"close")

MAX_MARGIN_SECONDS = 3.0
"""Part of drain_timeout that is reserved for the work after the last request."""

HURRY_SECONDS = 1.0
"""Time that requests in flight get after a second signal."""


class InFlightRequests:
    """Requests in flight in this process."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._in_flight: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._in_flight)

    async def serve(self, api: Asgi, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._in_flight.add(task)
        try:
            await api(scope, receive, self._with_close_header(scope, send))
        finally:
            self._in_flight.discard(task)

    def cancel_all(self) -> int:
        """Cancel all requests in flight and return their number."""
        for task in self._in_flight:
            task.cancel("the process is shutting down, and its drain timeout has passed")
        return len(self._in_flight)

    def _with_close_header(self, scope: Scope, send: Send) -> Send:
        # HTTP/2 and later have no such header; their servers announce the end of a connection themselves.
        if scope["type"] != "http" or scope.get("http_version") not in ("1.0", "1.1"):
            return send

        async def send_with_close(message: Message) -> None:
            if self._readiness.is_draining and message["type"] == "http.response.start":
                other_headers = [
                    each
                    for each in message.get("headers", ())
                    if each[0].lower() != CLOSE_HEADER[0]
                ]
                message = {**message, "headers": [*other_headers, CLOSE_HEADER]}
            await send(message)

        return send_with_close


class GracefulShutdown:
    """Shutdown of one server. `stop_server` stops it and receives the number of the first signal.

    `is_serving` is false while the server starts.
    """

    def __init__(
        self,
        app: Rota,
        requests: InFlightRequests,
        stop_server: Callable[[int], None],
        is_serving: Callable[[], bool] = lambda: True,
    ) -> None:
        self._app = app
        self._requests = requests
        self._stop_server = stop_server
        self._is_serving = is_serving
        self._has_begun = False
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_signal(self, number: int) -> None:
        """Begin the shutdown at the first signal, hurry at the second, stop the server at any later one."""
        if not self._has_begun:
            self._has_begun = True
            if self._is_serving():
                self._task = asyncio.create_task(self._shut_down(number), name="rota departure")
            else:
                self._stop_server(number)
        elif not self._hurry.is_set():
            log.info(
                "second signal: open requests have %g s, unfinished jobs return to their queue",
                HURRY_SECONDS,
            )
            self._hurry.set()
            self._app.readiness.hurry()
        else:
            self._stop_server(number)  # a third signal: the server's own shutdown

    async def _shut_down(self, number: int) -> None:
        readiness, settings = self._app.readiness, self._app.settings
        delay, grace = settings.drain_delay, settings.drain_timeout
        readiness.drain(delay)
        # An operator may have started the drain earlier.
        assert readiness.draining_since is not None
        deadline = readiness.draining_since + delay
        remaining = deadline - time.monotonic()
        log.info(
            "shutting down: not ready, %s; send the signal again to shorten this",
            f"serving for {remaining:.1f} s more"
            if remaining > 0
            else "accepting no more requests",
        )
        await self._wait_until(deadline)
        if in_flight := len(self._requests):
            log.info("accepting no more requests; %s request(s) in progress", in_flight)
        self._stop_server(number)
        # The timeout starts now, not with the drain: requests were accepted until here.
        await self._wait_until(time.monotonic() + grace - min(MAX_MARGIN_SECONDS, grace / 4))
        if self._requests and self._hurry.is_set():
            await asyncio.sleep(HURRY_SECONDS)
        if cancelled := self._requests.cancel_all():
            log.warning(
                "cancelled %s request(s) that did not end within the drain timeout", cancelled
            )

    async def _wait_until(self, deadline: float) -> None:
        """Wait until the deadline, or until a second signal."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await self._hurry.wait()
        except TimeoutError:
            pass

    def cancel(self) -> None:
        """Cancel the shutdown task. Called once the server has stopped."""
        if self._task is not None:
            self._task.cancel()
