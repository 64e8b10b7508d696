"""One connection of ours, which knows what is at its other end.

`pooled`: a pooler is in between, and the next transaction may be on another of its connections. Nothing is
set, prepared, listened for or locked there for longer than a transaction, and every transaction says by
itself what it relies on, in the same round trip.

Whatever it waits for has a deadline. A server that has gone without a word gives no error, for minutes; we
hang up then, and whoever waits sees a broken connection.

Imported where a connection is made: the driver takes its time to load.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

from psycopg import (
    AsyncClientCursor,
    AsyncConnection,
    AsyncTransaction,
    Connection,
    Error,
    IsolationLevel,
    OperationalError,
    sql,
)
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.types.json import set_json_loads

T = TypeVar("T")
Texts = Sequence[Sequence[tuple[bytes, Mapping[str, Any]]]]

# The process that was named to us at log-in is not the one that answers: somebody is in between. Then
# nothing may outlast this statement, for the session it runs in is not ours.
_SET = b"""
select count(set_config(name, value, %(pooled)s or pg_backend_pid() <> %(pid)s)) >= 0
       and (%(pooled)s or pg_backend_pid() <> %(pid)s)
  from unnest(%(names)s::text[], %(values)s::text[]) as setting (name, value)
"""
_SET_HERE = _SET.replace(b"%(pooled)s or pg_backend_pid() <> %(pid)s", b"false")

_BEGIN = b"begin isolation level read committed, read write, not deferrable"


CANCEL_WITHIN = 0.5
"""Seconds in which the server may end a statement that nobody waits for any more."""


class NoAnswer(OperationalError):
    """The line is dead, and nobody was told. So, probably, are others that were open at the time."""


class Session(AsyncConnection[Any]):
    pooled = False
    deadline: float | None = None
    """Seconds that one wait for the server may take."""

    _settings = b""
    _until: float | None = None
    _watch: asyncio.TimerHandle | None = None

    async def set_up(self, settings: Mapping[str, str], pooler: str, deadline: float) -> None:
        """Look at the other end, and have the settings hold: from here on, or in every transaction."""
        # JSON stays the bytes it is: the codec decodes it once, into the type that is wanted.
        set_json_loads(_raw, self)
        self.deadline = deadline
        cursor = await self.execute(
            _SET_HERE if pooler == "no" else _SET,
            {
                "pid": self.info.backend_pid,
                "pooled": pooler == "yes",
                "names": list(settings),
                "values": list(settings.values()),
            },
            prepare=False,
        )
        [(self.pooled,)] = await cursor.fetchall()
        if self.pooled:
            await self._share(settings)

    async def _share(self, settings: Mapping[str, str]) -> None:
        self.prepare_threshold = None
        await self.set_isolation_level(IsolationLevel.READ_COMMITTED)
        await self.set_read_only(False)
        await self.set_deferrable(False)
        # Answers come as text here, and are read when the transaction and its settings have gone.
        self.adapters.register_loader("timestamptz", _Moment)
        exact = {**settings, "extra_float_digits": "1"}
        each = sql.SQL(", ").join(
            sql.SQL("set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
            for name, value in exact.items()
        )
        self._settings = sql.SQL("select {}").format(each).as_bytes(self)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open here."""
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    # Transactions

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[AsyncTransaction]:
        """The same as ever, with our settings in place."""
        bare = self.pooled and self.is_idle
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            if bare:
                await self.execute(self._settings)
            yield transaction

    async def transact(self, segments: Texts) -> list[list[list[Any]]]:
        """Run several transactions through a pooler, in one round trip. Those before one that fails have
        committed, those after it are not begun.

        As text, in a single message. A pipeline would do as well, were it not for its end: the driver
        sends a flush after the last sync, and PgBouncer keeps a server for us until we speak again.
        """
        cursor = AsyncClientCursor(self)
        parts: list[bytes] = []
        for segment in segments:
            said = [cursor.mogrify(text, params).encode() for text, params in segment]
            parts += [_BEGIN, self._settings, *said, b"commit"]
        try:
            await cursor.execute(b"\n;\n".join(parts))
        except BaseException as error:
            await self._end(error)
            raise
        answers = []
        for segment in segments:
            cursor.nextset()
            answers.append([await _next(cursor) for _ in segment])
            cursor.nextset()
            cursor.nextset()
        return answers

    async def _end(self, error: BaseException) -> None:
        """Leave a transaction that has failed."""
        if isinstance(error, Exception) and not self.closed:
            with suppress(Error):
                await self.rollback()
        if not self.is_idle:
            await self.close()

    # Deadlines

    async def wait(self, gen: PQGen[T], *args: Any, **named: Any) -> T:
        if self.deadline is None:
            return await super().wait(gen, *args, **named)
        loop = asyncio.get_running_loop()
        until = self._until = loop.time() + self.deadline
        # One timer for many waits: most are over long before it looks.
        if self._watch is None or self._watch.when() > until:
            if self._watch is not None:
                self._watch.cancel()
            self._watch = loop.call_at(until, self._look)
        try:
            return await super().wait(gen, *args, **named)
        except OperationalError as error:
            if until <= loop.time():
                raise NoAnswer(
                    f"no answer in {self.deadline:g} s, so this connection was given up"
                ) from error
            raise
        finally:
            self._until = None

    def _look(self) -> None:
        """Whether the wait under way has taken too long."""
        self._watch = None
        if self._until is None:
            return
        loop = asyncio.get_running_loop()
        if self._until <= loop.time():
            self._hang_up()
        else:
            self._watch = loop.call_at(self._until, self._look)

    async def _try_cancel(self, *, timeout: float = 5.0) -> None:
        """Whoever stops waiting is not kept waiting: the server hears of it, or the line is cut."""
        asyncio.get_running_loop().call_later(CANCEL_WITHIN, self._hang_up)
        await super()._try_cancel(timeout=min(timeout, CANCEL_WITHIN))

    def _hang_up(self) -> None:
        hang_up(self)


class BlockingSession(Connection[Any]):
    """One for code in a thread."""

    deadline: float | None = None

    def wait(self, gen: PQGen[T], *args: Any, **named: Any) -> T:
        if self.deadline is None:
            return super().wait(gen, *args, **named)
        timer = threading.Timer(self.deadline, hang_up, [self])
        timer.daemon = True
        timer.start()
        try:
            return super().wait(gen, *args, **named)
        finally:
            timer.cancel()


def hang_up(session: Session | BlockingSession) -> None:
    """Not close(): somebody is reading, and is to find the end of the line."""
    with suppress(OSError, OperationalError):
        with socket.socket(fileno=os.dup(session.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)


class _Moment(Loader):
    """Read without asking how the session, which may be another by now, writes dates."""

    def load(self, data: Buffer) -> datetime:
        return datetime.fromisoformat(bytes(data).decode())


async def _next(cursor: AsyncClientCursor[Any]) -> list[Any]:
    cursor.nextset()
    result = cursor.pgresult
    return await cursor.fetchall() if result is not None and result.nfields else []


def _raw(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)
