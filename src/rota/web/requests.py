"""The requests a process has under way; while it leaves, each answer closes its connection.

A client that keeps its connection, and speaks again just as the server hangs up, gets no answer. Told
`Connection: close` while the socket still accepts, it opens another, elsewhere if it can.
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

CLOSE = (b"connection", b"close")

AS_THEY_ARE = "/:@!$&'()*+,;=~"
"""What a browser does not write otherwise in a path."""


def root_of(scope: Mapping[str, Any]) -> str:
    """Where an application is mounted, as it stands in an address."""
    return quote(scope.get("root_path", ""), safe=AS_THEY_ARE)


class Requests:
    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._under_way: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._under_way)

    async def serve(self, api: Asgi, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            await api(scope, receive, self._closing(scope, send))
        finally:
            self._under_way.discard(task)

    def cut_off(self) -> int:
        """End those that are still under way. Answers how many there were."""
        for task in self._under_way:
            task.cancel("the process leaves, and its grace is over")
        return len(self._under_way)

    def _closing(self, scope: Scope, send: Send) -> Send:
        # Later versions have no such header, and their servers say goodbye in their own way.
        if scope["type"] != "http" or scope.get("http_version") not in ("1.0", "1.1"):
            return send

        async def sent(message: Message) -> None:
            if self._readiness.draining and message["type"] == "http.response.start":
                kept = [each for each in message.get("headers", ()) if each[0].lower() != CLOSE[0]]
                message = {**message, "headers": [*kept, CLOSE]}
            await send(message)

        return sent
