"""Bounds on the HTTP connections of this process, so that idle clients cannot use up its file descriptors.

    request head    must be complete HEAD_SECONDS after the connection was made or its first byte was sent
    connections     at most half of the process's limit of open files, over all of its listeners; the other
                    half is left to the worker: database connections, files, processes

At the bound, a new connection closes the oldest one that waits for a request. A health check therefore gets
an answer while idle clients hold all other connections. If every connection has a request under way, the
new one is closed.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

log = logging.getLogger("rota")

HEAD_SECONDS = 10.0
MAX_CONNECTIONS = 100_000
WARN_SECONDS = 60.0

_Protocol: Any = AutoHTTPProtocol


class OpenConnections:
    """Open HTTP connections of a process, and those among them that wait for a request."""

    def __init__(self) -> None:
        self._open: set[asyncio.Transport] = set()
        self._idle: dict[LimitedProtocol, None] = {}  # longest idle first
        self._warned_at = float("-inf")

    @staticmethod
    def limit() -> int:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else max(files // 2, 1)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count a new connection; at the limit, close an idle one for it. Return False if none is idle."""
        limit = self.limit()
        if len(self._open) >= limit:
            # A WebSocket has another protocol, which does not report its end here.
            self._open = {each for each in self._open if not each.is_closing()}
        if len(self._open) >= limit:
            self._warn(limit)
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self._open.discard(oldest.transport)
            self.mark_busy(oldest)
            oldest.transport.abort()
        self._open.add(transport)
        return True

    def close(self, protocol: LimitedProtocol) -> None:
        self._open.discard(protocol.transport)
        self.mark_busy(protocol)

    def mark_idle(self, protocol: LimitedProtocol) -> None:
        self._idle[protocol] = None

    def mark_busy(self, protocol: LimitedProtocol) -> None:
        self._idle.pop(protocol, None)

    def _warn(self, limit: int) -> None:
        if time.monotonic() - self._warned_at > WARN_SECONDS:
            self._warned_at = time.monotonic()
            log.warning(
                "%s HTTP connections are open, the most this process accepts: idle ones are closed; raise "
                "its limit of open files (ulimit -n, LimitNOFILE) if these are wanted",
                limit,
            )


connections = OpenConnections()
"""Connections of all listeners of this process: they share its file descriptors."""


class LimitedProtocol(_Protocol):  # type: ignore[misc]
    """uvicorn's protocol, with the bounds above."""

    transport: asyncio.Transport

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if connections.admit(transport):
            connections.mark_idle(self)
            self._expect_head()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_request:
            connections.mark_busy(self)
            self._cancel_head_timer()
        elif self._head_timer is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._has_request and not self.transport.is_closing():
            connections.mark_idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        connections.close(self)
        super().connection_lost(exc)

    @property
    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head_timer = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.transport.abort)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
