"""A call that is made once for its key, whoever asks for it: the others get what it came to.

Who comes first makes it, and the keeper says all the while that he is at it. What it came to is kept under
his token: should somebody else have begun it since, because he was frozen or cut off, it counts for
nothing. A call that raises is nobody's any more; the next to come makes it. So it comes to one result, but
a crash on the way repeats the call.

Whoever made the call gets its result as all others do: read back from JSON.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any
from uuid import UUID

from rota.coord.company import Company
from rota.coord.lease import TAKEN, Lease
from rota.coord.looking import Asking, Look
from rota.errors import Busy, LockLost
from rota.model import codec
from rota.model.readers import reader_of
from rota.store import onces, waiters
from rota.store.onces import Begun
from rota.store.query import in_schema

log = logging.getLogger("rota")

FREE_WITHIN = 2.0
"""Seconds that the database has to answer."""


class Call:
    """One wish for the result. It is begun, and then kept or freed, unless the result was there."""

    def __init__(
        self,
        company: Callable[[], Awaitable[Company]],
        key: str,
        fn: Callable[..., Any],
        *,
        ttl: float,
        wait: float | None,
        keep: float | None,
    ) -> None:
        self.key = key
        self._open = company
        self._ttl = ttl
        self._wait = wait
        self._keep = keep
        self._label = getattr(fn, "__qualname__", type(fn).__qualname__)
        # Before anything is done: what cannot be kept is better not called.
        self.read = reader_of(fn)
        self._company: Company | None = None
        self._nonces: Sequence[UUID] = ()
        self._lease: Lease | None = None

    async def begin(self) -> str | None:
        """The result as it is kept; None: it is for us to make the call."""
        self._company = company = await self._open()
        look = Look(company, onces.TOLD, self.key, self._ttl, self._asking(company))
        try:
            sent, answer = await look.until(self._wait)
            if not answer.got:
                raise Busy(self._busy(answer))
        except BaseException:
            await company.see_through(self._free(company, look.unsure))
            raise
        if answer.result is not None:
            return answer.result.decode()
        assert answer.token is not None
        self._nonces = look.unsure
        self._lease = Lease(self.key, 0, answer.token, self._ttl, sent, lambda why: None)
        company.calls.keep(self._lease)
        company.keeper.nudge()
        return None

    def _asking(self, company: Company) -> Asking[Begun]:
        who = company.identity.under(self._label)
        return lambda nonce, earlier, wait: onces.begin(
            *(self.key, nonce, earlier, who, self._ttl), wait=wait
        )

    def _busy(self, answer: Begun) -> str:
        if answer.host is None:
            return f"once {self.key!r}: somebody begins the call at this moment; wait with wait=…"
        label = f" ({answer.label})" if answer.label else ""
        return (
            f"once {self.key!r}: the call is being made by {answer.host}, process {answer.pid}{label}, for "
            f"{answer.since or 0:.1f} s; wait longer with wait=…"
        )

    async def make(self, fn: Callable[[], Any]) -> Any:
        """Make the call, and keep what it comes to. A plain function is called in a thread."""
        if iscoroutinefunction(fn):
            return await self._make(fn)
        # Who no longer waits for a thread does not end it: it goes on, and what it comes to is kept.
        assert self._company is not None
        return await self._company.see_through(self._make(lambda: _in_thread(fn)))

    async def _make(self, fn: Callable[[], Awaitable[Any]]) -> Any:
        company = self._company
        assert company is not None
        try:
            value, text = self.reckon(await fn())
        except BaseException:
            await company.see_through(self.free())
            raise
        await self.keep(text)
        return value

    def reckon(self, value: Any) -> tuple[Any, str]:
        """What a call has returned, as all will read it, and as it is kept."""
        assert self._company is not None
        limit = self._company.database.settings.payload_limit
        text = codec.encode(value, f"what {self._label} returned", limit)
        return self.read(text), text

    async def keep(self, result: str) -> None:
        """Keep what it came to, also if who made the call is interrupted now. Raises LockLost if somebody
        else has begun it since."""
        assert self._company is not None
        assert self._lease is not None
        self._nonces = ()
        await self._company.see_through(self._keep_it(self._company, self._lease, result))

    async def _keep_it(self, company: Company, lease: Lease, result: str) -> None:
        try:
            # As long as it is not kept, we are at it: the database may be away for a moment.
            query = onces.finish(self.key, lease.token, result, self._keep)
            answers = await company.database.insist(query)
        finally:
            why = lease.why
            self._end(company, lease)
        if not answers:
            raise LockLost(
                f"once {self.key!r}: the call took longer than it was held (token {lease.token}; "
                f"{why or TAKEN}), and somebody else has begun it; what it returned is not kept"
            )
        await self._tell(company, answers)

    async def free(self) -> None:
        """Let go of it, if it was begun and nothing is kept: the next to come makes the call."""
        company, lease, nonces = self._company, self._lease, self._nonces
        if company is not None and lease is not None and nonces:
            self._nonces = ()
            self._end(company, lease)
            await self._free(company, nonces)

    async def _free(self, company: Company, nonces: Sequence[UUID]) -> None:
        if not nonces:
            return
        try:
            async with asyncio.timeout(FREE_WITHIN):
                query = onces.free(self.key, nonces)
                answers = await company.database.insist(query, patience=FREE_WITHIN)
        except Exception as error:
            log.debug("once %r may be held until its time is up: %s", self.key, error)
        else:
            await self._tell(company, answers)

    def _end(self, company: Company, lease: Lease) -> None:
        company.calls.drop(lease)
        lease.end()

    async def _tell(self, company: Company, answers: list[bool]) -> None:
        if any(answers) and company.database.settings.notify:
            channel = in_schema(onces.TOLD, company.database.schema)
            try:
                await company.database.run(waiters.notify(channel, [self.key]))
            except Exception as error:
                log.debug("nobody was told of once %r; they will look: %s", self.key, error)


async def _in_thread(fn: Callable[[], Any]) -> Any:
    value = await asyncio.to_thread(_carried, fn)
    return await value if isinstance(value, Awaitable) else value


def _carried(fn: Callable[[], Any]) -> Any:
    """What it returns or raises, but for the one error that nobody who awaits could be told of."""
    try:
        return fn()
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration") from error
