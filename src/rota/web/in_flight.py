"""Requests in flight in this process. While it drains, each response closes its connection.

A client with a keep-alive connection gets no response if it sends a request just as the server closes the
connection. With `Connection: close`, sent while the socket still accepts, the client opens a new
connection, which a load balancer routes to another instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

if TYPE_CHECKING:
    from rota.app.readiness import Readiness

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

CLOSE_HEADER = (b"connection", b"close")

PATH_SAFE_CHARACTERS = "/:@!$&'()*+,;=~"
"""Characters that browsers do not percent-encode in a path."""


def mount_path(scope: Mapping[str, Any]) -> str:
    """Return the path an application is mounted under, percent-encoded as in a URL."""
    return quote(scope.get("root_path", ""), safe=PATH_SAFE_CHARACTERS)


class InFlightRequests:
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
