"""Probe of the database for readiness: it can be reached, and its schema can be used."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from rota.app.readiness import UnreadyReason
from rota.engine.worker.session import wait_at_most
from rota.errors import SchemaChanged, SchemaMissing, SchemaTooNew, SchemaTooOld
from rota.store.migrate import check_on

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")

PROBE_INTERVAL_SECONDS = 1.0
PROBE_TIMEOUT_SECONDS = 1.0


class DatabaseProbe:
    """Latest probe of the database, shared by all callers in one event loop."""

    def __init__(self, open_client: Callable[[], Awaitable[Client]]) -> None:
        self._open_client = open_client
        self._connection: PgConnection | None = None
        self._probe_task: asyncio.Task[UnreadyReason | None] | None = None
        self._probe_began = 0.0
        self._failing_since: float | None = None
        self._timeouts = 0
        self._close_count = 0
        """Number of calls of `close`. A connection of a probe that began before the
        last call is not kept."""

    async def latest(self) -> UnreadyReason | None:
        now = time.monotonic()
        if self._probe_task is None or (
            self._probe_task.done() and now - self._probe_began >= PROBE_INTERVAL_SECONDS
        ):
            self._probe_began = now
            self._probe_task = asyncio.create_task(self._probe(), name="rota readiness")
        # Shielded: if one caller is cancelled, the probe continues for the remaining ones.
        return await asyncio.shield(self._probe_task)

    async def _probe(self) -> UnreadyReason | None:
        began = time.monotonic()
        try:
            if not await wait_at_most(self._check_schema(), PROBE_TIMEOUT_SECONDS):
                self._timeouts += 1
                if self._timeouts < 2:
                    return None
                return self._unreachable(began, f"no answer in {PROBE_TIMEOUT_SECONDS:g} s")
        except (SchemaMissing, SchemaChanged, SchemaTooOld) as error:
            self._failing_since, self._timeouts = None, 0
            return UnreadyReason("schema", str(error))
        except SchemaTooNew:
            pass  # a newer version was deployed meanwhile: serve until this instance is replaced
        except Exception as error:
            return self._unreachable(began, _public_message(error))
        self._failing_since, self._timeouts = None, 0
        return None

    async def _check_schema(self) -> None:
        client = await self._open_client()
        close_count = self._close_count
        # Detached while in use: a probe that timed out ends later, with its own connection.
        connection, self._connection = self._connection, None
        try:
            if connection is None or connection.closed:
                connection = await client.database.connect()
                connection.answer_timeout = PROBE_TIMEOUT_SECONDS
            await check_on(connection, client.database.schema)
        except BaseException:
            if connection is not None:
                await connection.close()
            raise
        await self._return_connection(connection, close_count)

    async def _return_connection(self, connection: PgConnection, close_count: int) -> None:
        if self._connection is None and close_count == self._close_count:
            self._connection = connection
        else:
            await connection.close()

    def _unreachable(self, began: float, reason: str) -> UnreadyReason:
        if self._failing_since is None:
            self._failing_since = began - (self._timeouts > 1) * PROBE_INTERVAL_SECONDS
        seconds = time.monotonic() - self._failing_since
        return UnreadyReason(
            "database", f"the database has been unreachable for {seconds:.0f} s: {reason}"
        )

    async def close(self) -> None:
        self._close_count += 1
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            await connection.close()


def _public_message(error: Exception) -> str:
    """Return a message without the address and the user of the database, because readiness is public. The
    error itself is logged."""
    log.debug("a probe of the database failed: %s", error)
    return "the connection failed or was refused; see the log of a worker"
