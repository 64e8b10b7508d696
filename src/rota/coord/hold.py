"""A lock, or a permit of a semaphore, from the moment it is wanted to the moment it is given back.

Taking one is a statement, giving it back another; in between the keeper renews it. Whoever does not get it
says so on the row and is told when it is given back; he also looks by himself, since who dies tells nobody.

Losing it is told three ways: `held` is false at once, by the clock, wherever it is asked; `lost` is set in
the event loop, as soon as that runs; and leaving the block raises LockLost. What must not happen twice is
guarded by none of them but by the token: `assert_held` in the transaction that does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Literal, TypeVar
from uuid import UUID

from rota.coord import trust
from rota.coord.body import Body
from rota.coord.company import Company
from rota.coord.lease import CLOSED, TAKEN, Lease
from rota.coord.looking import Asking, Look
from rota.errors import Busy, LockLost
from rota.model import events
from rota.store import failures, locks
from rota.store.locks import Answer
from rota.store.on import run_on

log = logging.getLogger("rota")

OnLost = Literal["tell", "cancel"]
H = TypeVar("H", bound="Hold")

ANSWER_WITHIN, SHORTEST_ANSWER = 5.0, 1.0
ABANDON_WITHIN = 2.0
"""Seconds that the database has to answer."""

ONE_EACH = "who may take it beside others has an object of his own, from app.lock(…)"


class Hold:
    """One of `permits`, or with 0 of them a lock."""

    def __init__(
        self,
        company: Callable[[], Awaitable[Company]],
        name: str,
        permits: int,
        *,
        ttl: float,
        wait: float | None,
        longest: float | None,
        label: str,
        on_lost: OnLost,
    ) -> None:
        self.name = name
        self.permits = permits
        self._open = company
        self._ttl = ttl
        self._wait = wait
        self._longest = longest
        self._label = label
        self._on_lost = on_lost
        self._lease: Lease | None = None
        self._company: Company | None = None
        self._body: Body | None = None
        self._taking = False
        self.lost = asyncio.Event()
        """Set when it is lost."""

    @property
    def what(self) -> str:
        return "permit of" if self.permits else "lock"

    @property
    def _itself(self) -> str:
        return f"{self.what} {self.name!r}"

    @property
    def token(self) -> int:
        """The fencing token: larger than every one before it."""
        return self._known().token

    @property
    def slot(self) -> int:
        return self._known().slot

    @property
    def held(self) -> bool:
        """Whether it can be relied on at this moment; true from any thread, and after any pause."""
        return self._lease is not None and self._lease.held()

    # Taking

    async def acquire(self: H) -> H:
        """Take it, waiting as long as `wait` says; raises Busy after that."""
        await self._acquire(self._wait)
        return self

    async def try_acquire(self) -> bool:
        """Take it if it is free."""
        try:
            await self._acquire(0.0)
        except Busy:
            return False
        return True

    async def _acquire(self, wait: float | None) -> None:
        if self._taking:
            raise RuntimeError(f"somebody takes {self._itself} already: {ONE_EACH}")
        if self._lease is not None and not self._is_over(self._lease):
            raise RuntimeError(f"{self._itself} is held already: release it first, or {ONE_EACH}")
        self._taking = True
        try:
            self._company = company = await self._open()
            sent, answer = await self._take(company, wait)
        finally:
            self._taking = False
        assert answer.slot is not None
        assert answer.token is not None
        self.lost.clear()
        lease = Lease(
            *(self.name, answer.slot, answer.token, self._ttl, sent),
            lambda why: self._lose(company, lease, why),
        )
        lease.longest = self._longest
        self._lease = lease
        company.renewals.keep(lease)
        company.keeper.nudge()
        company.announce(events.LockAcquired(self.name, lease.token))

    async def _take(self, company: Company, wait: float | None) -> tuple[float, Answer]:
        look = Look(company, locks.FREED, self.name, self._ttl, self._asking(company))
        began = trust.now()
        try:
            sent, answer = await look.until(wait)
            if not answer.got:
                raise Busy(self._busy(company, answer))
        except BaseException:
            if look.unsure:
                await company.see_through(self._abandon(company, look.unsure))
            raise
        finally:
            if look.waited and wait != 0:
                company.counts.waits.add(trust.now() - began)
        return sent, answer

    def _asking(self, company: Company) -> Asking[Answer]:
        who = company.identity.under(self._label)
        return lambda nonce, earlier, wait: locks.acquire(
            *(self.name, self.permits, nonce, who, self._ttl, self._longest),
            wait=wait,
            earlier=earlier,
        )

    async def _abandon(self, company: Company, nonces: list[UUID]) -> None:
        """Whoever has stopped to wait must not have it: nobody would give it back."""
        query = locks.abandon(self.name, nonces, company.identity.instance)
        try:
            async with asyncio.timeout(ABANDON_WITHIN):
                await company.database.insist(query, patience=ABANDON_WITHIN)
        except Exception as error:
            log.debug("%s may be held until it runs out: %s", self._itself, error)

    def _busy(self, company: Company, answer: Answer) -> str:
        if answer.host is None or (answer.left is not None and answer.left <= 0):
            return (
                f"{self._itself} is relied on by a transaction that is still open; "
                "`rota locks release` says whose"
            )
        me = company.identity
        here = (answer.host, answer.pid) == (me.host, me.pid)
        who = "this very process" if here else f"{answer.host}, process {answer.pid}"
        label = f" ({answer.label})" if answer.label else ""
        many = (
            f"all {self.permits} permits of {self.name!r} are held; one"
            if self.permits
            else (f"lock {self.name!r} is")
        )
        return (
            f"{many} held by {who}{label} under token {answer.other} for {answer.since or 0:.1f} s; "
            "wait longer with wait=…, or see `rota locks`"
        )

    # Losing

    def _lose(self, company: Company, lease: Lease, why: str) -> None:
        """Called by the keeper, or by whoever asked first."""
        company.announce(events.LockForfeited(self.name, lease.token, why))
        company.tell(lambda: self._told(lease))

    def _told(self, lease: Lease) -> None:
        if lease is not self._lease:
            return  # it has been taken anew since
        self.lost.set()
        if self._body is not None and self._on_lost == "cancel":
            self._body.cancel()

    def _is_over(self, lease: Lease) -> bool:
        return lease.ended or lease.why is not None

    def _known(self) -> Lease:
        if self._lease is None:
            raise RuntimeError(f"{self._itself} has not been acquired")
        return self._lease

    async def assert_held(self, connection: Any) -> None:
        """Refuse the rest of the transaction on this connection of yours, with LockLost, if it is no longer
        held; else nobody else gets it until the transaction ends."""
        answer = self.assertion(connection)
        if isinstance(answer, Awaitable):
            await answer

    def assertion(self, connection: Any) -> Any:
        """The same for a connection of any kind; answers what is to be awaited, if anything is."""
        lease, company = self._known(), self._company
        assert company is not None
        return run_on(connection, locks.assertion(lease.name, lease.token), company.database.schema)

    # Giving back

    async def release(self) -> None:
        """Give it back. Raises LockLost if it was lost before."""
        lease, company = self._known(), self._company
        assert company is not None
        if lease.ended:
            return
        why = lease.why
        if not lease.inherited:
            # First, so that a renewal under way is not refused, and told, for what we do ourselves.
            lease.end()
            company.renewals.drop(lease)
            passed = why != CLOSED and await company.see_through(self._give_back(company, lease))
            if why is None and passed:
                why = TAKEN
        if why is not None:
            raise LockLost(f"{self._itself} (token {lease.token}) was lost: {why}")
        company.alarms.released(lease)
        company.announce(events.LockReleased(self.name, lease.token))

    async def _give_back(self, company: Company, lease: Lease) -> bool:
        """Whether somebody else has had it. While the database is away that is not known, and it runs out
        by itself."""
        patience = min(max(lease.until - trust.now(), SHORTEST_ANSWER), ANSWER_WITHIN)
        try:
            async with asyncio.timeout(patience):
                return await company.give_back([lease], patience) == [None]
        except TimeoutError:
            log.warning("%s could not be given back in %.1f s", self._itself, patience)
        except Exception as error:
            if not failures.is_passing(error):
                raise
            log.warning("%s could not be given back: %s", self._itself, error)
        return False

    async def __aenter__(self: H) -> H:
        if self._body is not None:
            raise RuntimeError(f"{self._itself} has been entered already: {ONE_EACH}")
        if self._lease is None or self._is_over(self._lease):
            await self.acquire()
        self._body = Body()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        body, self._body = self._body, None
        ours = body is not None and body.ended(error)
        try:
            await self.release()
        except Exception as failure:
            if error is None:
                raise
            if ours and isinstance(failure, LockLost):
                raise failure from None
            error.add_note(str(failure))
        return False
