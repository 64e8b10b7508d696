"""Loop of one service on one instance: seek election, then run iteration after iteration until stopped.

- Every iteration begins with a statement that asserts the term. If the term has ended, or the database is
  unavailable, no iteration begins.
- One iteration runs at a time. An iteration that does not stop when its term is lost continues to run.
  Until it ends, this instance is no candidate for the service: another instance may run it.
- The pause until the next iteration is counted from the start of the last one, on any instance. An
  iteration that was cut short or lost is made up for at once.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from rota.coord.candidate import Term
from rota.coord.coordinator import Coordinator
from rota.coord.leader import Leader
from rota.coord.service_iteration import ServiceIteration, ServiceTerm
from rota.model import codec, events
from rota.model.service import MAX_BACKOFF_SECONDS, ServiceContext, ServiceDefinition
from rota.store import pg_errors, services
from rota.store.query import Query
from rota.store.raw_connections import RawConnections

log = logging.getLogger("rota")

FOREVER_STOP_SECONDS = 3.0
"""Seconds that a continuous service has to end after a request to stop."""

UNWIND_SECONDS = 1.0
"""Seconds that an iteration has to end after its term was lost, before this instance withdraws."""

RECORD_TIMEOUT_SECONDS = 2.0
"""Seconds to record the end of the last iteration."""

RETRY_SECONDS = 0.2
ERROR_DELAY_SECONDS = 3.0
"""Seconds before a failed statement is sent again, and before the loop restarts after an unexpected error.
"""


class ServiceRunner:
    def __init__(
        self,
        coordinator: Coordinator,
        raw_connections: RawConnections,
        definition: ServiceDefinition,
        yield_delay: Callable[[str, Sequence[str]], float],
        on_change: Callable[[], None],
    ) -> None:
        self.definition = definition
        self._coordinator = coordinator
        self._raw_connections = raw_connections
        self._on_change = on_change
        self._leader = Leader(
            self._get_coordinator,
            services.leader_of(definition.name),
            lease=definition.lease,
            label="",
            yield_delay=lambda vacant: yield_delay(definition.name, vacant),
        )
        self._iteration: ServiceIteration | None = None
        self._query_task: asyncio.Task[Any] | None = None
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self._handing_over = asyncio.Event()
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """True if this instance runs the service. Thread-safe."""
        return self._leader.is_leader()

    @property
    def is_staying(self) -> bool:
        """True if this instance runs the service and is not handing it over. Thread-safe."""
        return self.is_running and not self._is_ending

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"rota service {self.definition.name}")

    def hand_over(self) -> None:
        """Hand the service over to another instance as soon as the iteration in progress has ended."""
        self._handing_over.set()
        self._signal_stop()

    def request_stop(self) -> None:
        self._stopping.set()
        self._signal_stop()

    def hurry(self) -> None:
        """Do not wait for the iteration in progress, neither now nor when the service stops."""
        self._hurried.set()

    async def stop(self, grace: float) -> None:
        """Stop. An iteration in progress has `grace` seconds to end."""
        self.request_stop()
        if self._task is None:
            return
        margin = min(RECORD_TIMEOUT_SECONDS, grace / 4)
        await wait_first(self._task, self._hurried, timeout=grace - margin)
        if not self._task.done():
            self._cancel_current()
            await asyncio.wait([self._task], timeout=max(margin, 0.5))
        if not self._task.done():
            log.warning("service %r does not stop; it runs on here", self.definition.name)

    def _signal_stop(self) -> None:
        iteration = self._iteration
        if iteration is not None:
            iteration.request_stop()
            if self.definition.every is None:
                # A continuous service is asked to end, then cancelled.
                asyncio.get_running_loop().call_later(FOREVER_STOP_SECONDS, iteration.cancel)

    def _cancel_current(self) -> None:
        if self._iteration is not None:
            self._iteration.cancel()
        if self._query_task is not None:
            self._query_task.cancel()

    async def _get_coordinator(self) -> Coordinator:
        return self._coordinator

    # Election and terms

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                async with self._leader:
                    await self._run_terms()
            except Exception:
                if self._coordinator.is_closed:
                    return  # the app was closed, so nothing can be recorded
                log.exception("service %r stopped unexpectedly", self.definition.name)
                await wait_first(None, self._stopping, timeout=ERROR_DELAY_SECONDS)
            if self._iteration is not None:
                await self._wait_for_stuck_iteration(self._iteration)

    async def _run_terms(self) -> None:
        """Run the service in every term won, until it is stopped or an iteration outlives its term."""
        while self._iteration is None and not self._stopping.is_set():
            term = await self._wait_elected()
            if term is None:
                return
            self._handing_over.clear()
            self._on_change()
            try:
                await self._run_term(term)
            finally:
                # A newer term may have begun.
                if term.held:
                    await self._leader.resign()
                self._on_change()

    async def _wait_for_stuck_iteration(self, iteration: ServiceIteration) -> None:
        log.warning(
            "service %r lost its term, but its iteration does not stop; this instance is no candidate "
            "until it has stopped",
            self.definition.name,
        )
        await asyncio.wait([iteration.task])
        self._iteration = None

    async def _wait_elected(self) -> Term | None:
        election = asyncio.create_task(self._leader.elected())
        try:
            await wait_first(election, self._stopping)
            return election.result() if election.done() else None
        finally:
            election.cancel()

    async def _run_term(self, term: Term) -> None:
        definition = self.definition
        instance = self._coordinator.identity.instance
        entry = await self._run_query(
            term,
            services.begin_term(
                definition.name, definition.every, MAX_BACKOFF_SECONDS, term.number, instance
            ),
        )
        if entry is None:
            return
        self._failures = entry.failures
        # Limits the delay if the database's clock was changed.
        delay = min(entry.delay, definition.pause_seconds(entry.failures, 0.0))
        log.info("runs service %r (term %s)", definition.name, term.number)
        while await self._wait_next(delay, term):
            began = asyncio.get_running_loop().time()
            number = await self._run_query(
                term,
                services.begin_iteration(
                    definition.name, term.number, self._coordinator.identity.as_params("")
                ),
            )
            if number is None:
                return
            await self._run_iteration(term, number)
            delay = definition.pause_seconds(
                self._failures, asyncio.get_running_loop().time() - began
            )

    async def _wait_next(self, seconds: float, term: Term) -> bool:
        """Wait for the next iteration. Return False if there is to be none."""
        await wait_first(None, term.lost, self._stopping, self._handing_over, timeout=seconds)
        return term.held and not self._is_ending and self._iteration is None

    @property
    def _is_ending(self) -> bool:
        return self._stopping.is_set() or self._handing_over.is_set()

    async def _run_query(self, term: Term, query: Query[Any]) -> Any:
        """Return the answer to a query that asserts the term, or None if the term or service has ended."""
        while term.held and not self._is_ending:
            query_task = self._query_task = asyncio.create_task(
                self._coordinator.database.run(query)
            )
            try:
                await wait_first(query_task, term.lost)
            finally:
                self._query_task = None
                query_task.cancel()
            await asyncio.wait([query_task])
            if query_task.cancelled():
                return None
            error = query_task.exception()
            if error is None:
                rows = query_task.result()
                return rows[0] if rows else None
            if not pg_errors.is_transient(error):
                raise error
            await wait_first(
                None, term.lost, self._stopping, self._handing_over, timeout=RETRY_SECONDS
            )
        return None

    # Iterations

    async def _run_iteration(self, term: Term, number: int) -> None:
        name = self.definition.name
        if self._is_ending or not term.held:
            await self._record(term, number, "stopped", 0.0)  # stopped before it began
            return
        context = ServiceContext(
            name, number, ServiceTerm(term, self._raw_connections, self.definition.lease)
        )
        iteration = self._iteration = ServiceIteration(self.definition, context)
        try:
            await wait_first(iteration.task, term.lost)
            if not iteration.has_ended:
                iteration.cancel()
                await asyncio.wait([iteration.task], timeout=UNWIND_SECONDS)
        except asyncio.CancelledError:
            iteration.cancel()
            raise
        if iteration.has_ended:
            self._iteration = None
        error = (
            None
            if not iteration.has_ended or iteration.task.cancelled()
            else iteration.task.result()
        )
        outcome = self._outcome(term, iteration, error)
        duration = iteration.duration
        self._failures = self.definition.count_failures(self._failures, outcome, duration)
        failure = error if outcome == "failed" else None
        await self._record(term, number, outcome, duration, failure)

    def _outcome(self, term: Term, iteration: ServiceIteration, error: BaseException | None) -> str:
        if not term.held:
            return "lost"
        if iteration.was_cancelled:
            return "stopped"
        if error is not None:
            return "failed"
        # A continuous service that returned has not succeeded if it was asked to stop.
        stopped_on_request = self.definition.every is None and self._is_ending
        return "stopped" if stopped_on_request else "succeeded"

    async def _record(
        self,
        term: Term,
        number: int,
        outcome: str,
        duration: float,
        error: BaseException | None = None,
    ) -> None:
        name, document = self.definition.name, None
        if error is not None:
            text = _format_traceback(error)
            document = codec.encode_error(error, self._failures, text)
            log.warning(
                "service %r failed: %s; the next try is in %.0f s",
                name,
                codec.decode_error(document.encode()).summary,
                self.definition.pause_seconds(self._failures, duration),
                exc_info=codec.loggable(error, text) if self._failures == 1 else None,
            )
        delay = self.definition.backoff_seconds(self._failures) if outcome == "failed" else 0.0
        query = services.finish_iteration(
            name, number, term.number, outcome, document, self._failures, delay
        )
        if await self._write_outcome(term, query):
            self._coordinator.publish(events.ServiceRan(name, number, outcome))

    async def _write_outcome(self, term: Term, query: Query[Any]) -> bool:
        """Record the outcome of an iteration. Return True if it was recorded.

        While the term is held, retry until it is, because the next iteration must not begin before.
        """
        while True:
            try:
                async with asyncio.timeout(RECORD_TIMEOUT_SECONDS):
                    await self._coordinator.database.run_with_retry(
                        query, outage_timeout=RECORD_TIMEOUT_SECONDS
                    )
                return True
            except Exception as failure:
                if term.held and not self._is_ending and pg_errors.is_transient(failure):
                    continue
                name = self.definition.name
                log.warning(
                    "the outcome of an iteration of service %r could not be recorded: %s",
                    name,
                    failure,
                )
                return False


def _format_traceback(error: BaseException) -> str:
    try:
        # Skip the first frame, which is Rota's own.
        trace = error.__traceback__
        return "".join(
            traceback.format_exception(type(error), error, trace.tb_next if trace else None)
        )
    except Exception:
        return ""


async def wait_first(
    future: asyncio.Future[Any] | None, *stop_events: asyncio.Event, timeout: float | None = None
) -> None:
    """Wait for the first of these, `timeout` seconds at most. Nothing that is waited for is cancelled."""
    if any(each.is_set() for each in stop_events) or (timeout is not None and timeout <= 0):
        await asyncio.sleep(0)
        return
    event_tasks: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(each.wait()) for each in stop_events
    ]
    try:
        await asyncio.wait(
            event_tasks if future is None else [future, *event_tasks],
            timeout=timeout,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        for each in event_tasks:
            each.cancel()
