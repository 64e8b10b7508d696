"""Waiter for the outcomes of runs.

A waiter registers first and polls second. A worker commits an outcome first and notifies second. So one
of the two always notices the other. If the notification is lost, polling finds the outcome: at short
intervals first, then once a second.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from rota.clock import Clock
from rota.engine.notify.listener import Listener
from rota.errors import RunNotFound
from rota.poll import PollPauses
from rota.store import listeners, pg_errors, runs
from rota.store.database import Database
from rota.store.query import Query
from rota.store.runs import RunOutcome

MAX_POLL_SECONDS = 1.0


class ResultWaiter:
    def __init__(self, database: Database, listener: Listener) -> None:
        self._database = database
        self._listener = listener
        self._channel = f"{database.schema}.{uuid4().hex[:20]}"
        self._clock = Clock()
        self._waiting: dict[int, list[PollPauses]] = {}
        self._registered: set[int] = set()  # runs registered for, and not notified of yet
        self._subscribed = False

    def _may_retry(self, error: Exception, failing_since: float) -> bool:
        """True in an outage, however long, and for `outage_timeout` after other errors that may pass."""
        gives_up_at = failing_since + self._database.settings.outage_timeout
        is_early = self._clock.now() < gives_up_at
        return pg_errors.is_transient(error) or (is_early and pg_errors.may_pass(error))

    async def outcome(
        self, run: int, timeout: float | None = None, *, or_failure: bool = False
    ) -> RunOutcome:
        """Return the outcome of a run once it has one; with `or_failure`, also once a job in it has failed.

        Raise TimeoutError after `timeout` seconds.
        """
        pauses = PollPauses(
            self._clock, timeout, max_seconds=MAX_POLL_SECONDS, notified_seconds=MAX_POLL_SECONDS
        )
        self._waiting.setdefault(run, []).append(pauses)
        listening = self._subscribe()
        failing_since: float | None = None
        try:
            while True:
                # After a notification, poll first, and register again only if the run has not ended.
                unregistered = listening and run not in self._registered
                register = unregistered and not pauses.notified
                pauses.notified = False
                try:
                    outcome = await self._poll(run, register=register)
                except Exception as error:
                    failing_since = failing_since or self._clock.now()
                    if not self._may_retry(error, failing_since):
                        raise
                else:
                    failing_since = None
                    if outcome.state is not None:
                        return outcome
                    if or_failure and outcome.is_failing:
                        return outcome
                    if unregistered and not register:
                        continue
                if pauses.is_over:
                    raise TimeoutError(f"run {run} has no outcome after {timeout:g} s")
                await pauses.pause(
                    will_be_notified=listening and self._listener.is_listening(self._channel)
                )
        finally:
            self._waiting[run].remove(pauses)
            if not self._waiting[run]:
                del self._waiting[run]
                if run in self._registered:
                    self._registered.discard(run)
                    await self._unregister(run)

    async def _poll(self, run: int, *, register: bool) -> RunOutcome:
        transactions: list[list[Query[Any]]] = [[runs.outcome([run])]]
        if register:
            transactions.insert(0, [listeners.register(self._channel, [run])])
        answers = await self._database.pipeline(transactions)
        if register and answers[0][0]:
            self._registered.add(run)
        if not answers[-1][0]:
            raise RunNotFound(f"there is no run {run}; it may have been removed by retention")
        outcome: RunOutcome = answers[-1][0][0]
        return outcome

    async def _unregister(self, run: int) -> None:
        try:
            await self._database.run(listeners.unregister(self._channel, [run]))
        except Exception:
            # The row is deleted when the job ends; until then it costs one unused notification.
            return

    def _subscribe(self) -> bool:
        if not self._database.settings.notify or self._listener.unavailable:
            return False
        if not self._subscribed:
            self._subscribed = True
            self._listener.subscribe(self._channel, self._on_notify)
        return True

    def _on_notify(self, payload: str) -> None:
        if payload == listeners.MAY_HAVE_MISSED:
            for waiting in self._waiting.values():
                for each in waiting:
                    each.notify()
            return
        # A notification ends the registration, and the run need not have ended.
        self._registered.discard(int(payload))
        for each in self._waiting.get(int(payload), ()):
            each.notify()
