"""Waiter for the outcomes of runs.

A waiter registers first and polls second. A worker commits an outcome first and notifies second. So one
of the two always notices the other. If the notification is lost, polling finds the outcome: at short
intervals first, then once a second.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

from rota.engine.notify.listener import Listener
from rota.errors import RunNotFound
from rota.store import listeners, pg_errors, runs
from rota.store.database import Database
from rota.store.query import Query
from rota.store.runs import RunOutcome

FIRST_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 1.0


class ResultWaiter:
    def __init__(self, database: Database, listener: Listener) -> None:
        self._database = database
        self._listener = listener
        self._channel = f"{database.schema}.{uuid4().hex[:20]}"
        self._events: dict[int, list[asyncio.Event]] = {}
        self._registered: set[int] = set()  # runs registered for, and not notified of yet
        self._subscribed = False

    async def outcome(
        self, run: int, timeout: float | None = None, *, or_failure: bool = False
    ) -> RunOutcome:
        """Return the outcome of a run once it has one; with `or_failure`, also once a job in it has failed.

        Raise TimeoutError after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        notified = asyncio.Event()
        self._events.setdefault(run, []).append(notified)
        listening = self._subscribe()
        pause = FIRST_POLL_SECONDS
        try:
            while True:
                # After a notification, poll first, and register again only if the run has not ended.
                unregistered = listening and run not in self._registered
                register = unregistered and not notified.is_set()
                notified.clear()
                try:
                    outcome = await self._poll(run, register=register)
                except Exception as error:
                    if not pg_errors.is_transient(error):
                        raise
                else:
                    if outcome.state is not None:
                        return outcome
                    if or_failure and outcome.is_failing:
                        return outcome
                    if unregistered and not register:
                        continue
                is_listening = listening and self._listener.is_listening(self._channel)
                pause = MAX_POLL_SECONDS if is_listening else min(pause * 2, MAX_POLL_SECONDS)
                wait_seconds = (
                    pause if deadline is None else min(pause, deadline - time.monotonic())
                )
                if wait_seconds <= 0:
                    raise TimeoutError(f"run {run} has no outcome after {timeout:g} s")
                try:
                    async with asyncio.timeout(wait_seconds):
                        await notified.wait()
                except TimeoutError:
                    continue
        finally:
            self._events[run].remove(notified)
            if not self._events[run]:
                del self._events[run]
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
            for events in self._events.values():
                for event in events:
                    event.set()
            return
        # A notification ends the registration, and the run need not have ended.
        self._registered.discard(int(payload))
        for event in self._events.get(int(payload), ()):
            event.set()
