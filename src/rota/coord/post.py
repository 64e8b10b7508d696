"""One service on one instance: stand by, and when elected run it, iteration by iteration, until told to
stop.

- Every iteration begins with a statement that names the term: where that is over, or the database is away,
  none begins.
- One iteration at a time. What does not stop when its term was lost runs on here, and this instance does
  not stand for the service again until it has ended: another may have it.
- How long until the next is counted from the start of the last one, whoever ran it. One that was cut short
  or lost is made up for at once.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from rota.coord.candidacy import Term
from rota.coord.company import Company
from rota.coord.iteration import Iteration
from rota.coord.leader import Leader
from rota.coord.serving import Serving
from rota.model import codec, events
from rota.model.service import LONGEST_BACK_OFF, ServiceContext, ServiceDefinition
from rota.store import failures, services
from rota.store.plain import Plain
from rota.store.query import Query

log = logging.getLogger("rota")

ENOUGH = 3.0
"""Seconds in which a service that goes on for ever may come to its end by itself."""

UNWIND_WITHIN = 1.0
"""Seconds in which an iteration whose term was lost may end, before the service is left to others."""

FINISH_WITHIN = 2.0
"""Seconds in which the end of the last iteration may be written down."""

ASK_AGAIN = 0.2
AFTER_TROUBLE = 3.0
"""Seconds."""


class Post:
    def __init__(
        self,
        company: Company,
        plain: Plain,
        definition: ServiceDefinition,
        reluctance: Callable[[str, Sequence[str]], float],
        changed: Callable[[], None],
    ) -> None:
        self.definition = definition
        self._company = company
        self._plain = plain
        self._changed = changed
        self._leader = Leader(
            self._get_company,
            services.leader_of(definition.name),
            lease=definition.lease,
            label="",
            reluctance=lambda vacant: reluctance(definition.name, vacant),
        )
        self._iteration: Iteration | None = None
        self._asking: asyncio.Task[Any] | None = None
        self._leaving = asyncio.Event()
        self._hurried = asyncio.Event()
        self._passing_on = asyncio.Event()
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        """Whether the service runs here; from any thread."""
        return self._leader.is_leader()

    @property
    def stays(self) -> bool:
        """Whether it runs here, and will; from any thread."""
        return self.runs and not self._over

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"rota service {self.definition.name}")

    def pass_on(self) -> None:
        """Let another instance have it, as soon as the iteration under way has ended."""
        self._passing_on.set()
        self._tell()

    def begin_to_stop(self) -> None:
        self._leaving.set()
        self._tell()

    def hurry(self) -> None:
        """Do not wait for what is under way, now or when it stops."""
        self._hurried.set()

    async def stop(self, grace: float) -> None:
        """Stop; what is under way has so many seconds to end."""
        self.begin_to_stop()
        if self._task is None:
            return
        margin = min(FINISH_WITHIN, grace / 4)
        await first(self._task, self._hurried, within=grace - margin)
        if not self._task.done():
            self._cut_short()
            await asyncio.wait([self._task], timeout=max(margin, 0.5))
        if not self._task.done():
            log.warning("service %r does not stop; it runs on here", self.definition.name)

    def _tell(self) -> None:
        iteration = self._iteration
        if iteration is not None:
            iteration.tell()
            if self.definition.every is None:
                # What goes on for ever ends when it is told to, or is ended.
                asyncio.get_running_loop().call_later(ENOUGH, iteration.cut)

    def _cut_short(self) -> None:
        if self._iteration is not None:
            self._iteration.cut()
        if self._asking is not None:
            self._asking.cancel()

    async def _get_company(self) -> Company:
        return self._company

    # Being the one

    async def _run(self) -> None:
        while not self._leaving.is_set():
            try:
                async with self._leader:
                    await self._stand_by()
            except Exception:
                if self._company.ended:
                    return  # the app was closed, and nothing can be said any more
                log.exception("service %r stopped unexpectedly", self.definition.name)
                await first(None, self._leaving, within=AFTER_TROUBLE)
            if self._iteration is not None:
                await self._left_behind(self._iteration)

    async def _stand_by(self) -> None:
        """Run it whenever elected, until told to leave, or until something runs on whose term is over."""
        while self._iteration is None and not self._leaving.is_set():
            term = await self._elected()
            if term is None:
                return
            self._passing_on.clear()
            self._changed()
            try:
                await self._serve(term)
            finally:
                if term.held:  # there may be another by now
                    await self._leader.resign()
                self._changed()

    async def _left_behind(self, iteration: Iteration) -> None:
        log.warning(
            "service %r is no longer run here, and does not stop: left to others until it does",
            self.definition.name,
        )
        await asyncio.wait([iteration.task])
        self._iteration = None

    async def _elected(self) -> Term | None:
        won = asyncio.create_task(self._leader.elected())
        try:
            await first(won, self._leaving)
            return won.result() if won.done() else None
        finally:
            won.cancel()

    async def _serve(self, term: Term) -> None:
        definition = self.definition
        instance = self._company.identity.instance
        due = await self._ask(
            term,
            services.enter(
                definition.name, definition.every, LONGEST_BACK_OFF, term.number, instance
            ),
        )
        if due is None:
            return
        self._failures = due.failures
        # Whatever has become of the clock meanwhile.
        rest = min(due.rest, definition.rest(due.failures, 0.0))
        log.info("runs service %r (term %s)", definition.name, term.number)
        while await self._rests(rest, term):
            began = asyncio.get_running_loop().time()
            number = await self._ask(
                term, services.begin(definition.name, term.number, self._company.identity.under(""))
            )
            if number is None:
                return
            await self._iterate(term, number)
            rest = definition.rest(self._failures, asyncio.get_running_loop().time() - began)

    async def _rests(self, seconds: float, term: Term) -> bool:
        """Wait for the next iteration. Answers whether there is to be one."""
        await first(None, term.lost, self._leaving, self._passing_on, within=seconds)
        return term.held and not self._over and self._iteration is None

    @property
    def _over(self) -> bool:
        return self._leaving.is_set() or self._passing_on.is_set()

    async def _ask(self, term: Term, query: Query[Any]) -> Any:
        """The answer to a query that names the term, as long as that stands and nobody wants an end; None:
        it is over."""
        while term.held and not self._over:
            asking = self._asking = asyncio.create_task(self._company.database.run(query))
            try:
                await first(asking, term.lost)
            finally:
                self._asking = None
                asking.cancel()
            await asyncio.wait([asking])
            if asking.cancelled():
                return None
            error = asking.exception()
            if error is None:
                rows = asking.result()
                return rows[0] if rows else None
            if not failures.is_passing(error):
                raise error
            await first(None, term.lost, self._leaving, self._passing_on, within=ASK_AGAIN)
        return None

    # One iteration

    async def _iterate(self, term: Term, number: int) -> None:
        name = self.definition.name
        if self._over or not term.held:
            await self._note(term, number, "stopped", 0.0)  # it had better not begin any more
            return
        context = ServiceContext(name, number, Serving(term, self._plain))
        iteration = self._iteration = Iteration(self.definition, context)
        try:
            await first(iteration.task, term.lost)
            if not iteration.ended:
                iteration.cut()
                await asyncio.wait([iteration.task], timeout=UNWIND_WITHIN)
        except asyncio.CancelledError:
            iteration.cut()
            raise
        if iteration.ended:
            self._iteration = None
        error = (
            None if not iteration.ended or iteration.task.cancelled() else iteration.task.result()
        )
        outcome = self._outcome(term, iteration, error)
        lasted = iteration.lasted
        self._failures = self.definition.count(self._failures, outcome, lasted)
        failure = error if outcome == "failed" else None
        await self._note(term, number, outcome, lasted, failure)

    def _outcome(self, term: Term, iteration: Iteration, error: BaseException | None) -> str:
        if not term.held:
            return "lost"
        if iteration.was_cut:
            return "stopped"
        if error is not None:
            return "failed"
        # One that goes on for ever has not come to an end, but was told to.
        told = self.definition.every is None and self._over
        return "stopped" if told else "succeeded"

    async def _note(
        self,
        term: Term,
        number: int,
        outcome: str,
        lasted: float,
        error: BaseException | None = None,
    ) -> None:
        name, document = self.definition.name, None
        if error is not None:
            document = codec.error_document(error, self._failures, _trace(error))
            log.warning(
                "service %r failed (%s); the next try is in %.0f s",
                name,
                codec.error_type(document),
                self.definition.rest(self._failures, lasted),
            )
        rest = self.definition.back_off(self._failures) if outcome == "failed" else 0.0
        query = services.finish(name, number, term.number, outcome, document, self._failures, rest)
        if await self._written(term, query):
            self._company.announce(events.ServiceRan(name, number, outcome))

    async def _written(self, term: Term, query: Query[Any]) -> bool:
        """Nothing else begins before it is, as long as that is for us to say."""
        while True:
            try:
                async with asyncio.timeout(FINISH_WITHIN):
                    await self._company.database.insist(query, patience=FINISH_WITHIN)
                return True
            except Exception as failure:
                if term.held and not self._over and failures.is_passing(failure):
                    continue
                name = self.definition.name
                log.warning("what became of service %r is not known: %s", name, failure)
                return False


def _trace(error: BaseException) -> str:
    try:
        # The first frame is ours and says nothing about the user's code.
        trace = error.__traceback__
        return "".join(
            traceback.format_exception(type(error), error, trace.tb_next if trace else None)
        )
    except Exception:
        return ""


async def first(
    what: asyncio.Future[Any] | None, *told: asyncio.Event, within: float | None = None
) -> None:
    """Wait for the first of these, and no longer than that. What is waited for is not cancelled."""
    if any(each.is_set() for each in told) or (within is not None and within <= 0):
        await asyncio.sleep(0)
        return
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(each.wait()) for each in told]
    try:
        await asyncio.wait(
            waits if what is None else [what, *waits],
            timeout=within,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        for each in waits:
            each.cancel()
