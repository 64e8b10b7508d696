"""Waiting for outcomes.

A waiter registers first and looks second; whoever records an outcome commits first and tells second.
One of the two always sees the other. If the telling is lost all the same, a look now and then finds
the outcome: at first often, then once a second.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

from rota.engine.wakeups import Wakeups
from rota.errors import RunNotFound
from rota.store import failures, runs, waiters
from rota.store.database import Database
from rota.store.query import Query
from rota.store.runs import Ending

FIRST_LOOK = 0.02
LAST_LOOK = 1.0


class Waiting:
    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._listener = f"{database.schema}.{uuid4().hex[:20]}"
        self._told: dict[int, list[asyncio.Event]] = {}
        self._asked: set[int] = set()  # runs that we are registered for and not told of yet
        self._subscribed = False

    async def outcome(
        self, run: int, timeout: float | None = None, *, or_failure: bool = False
    ) -> Ending:
        """The outcome of a run, once it has one; with `or_failure`, or once something in it has failed.
        Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        told = asyncio.Event()
        self._told.setdefault(run, []).append(told)
        listening = self._listen()
        pause = FIRST_LOOK
        try:
            while True:
                # Whoever was told looks first, and asks to be told again only if that was not the end.
                unasked = listening and run not in self._asked
                asks = unasked and not told.is_set()
                told.clear()
                try:
                    ending = await self._look(run, register=asks)
                except Exception as error:
                    if not failures.is_passing(error):
                        raise
                else:
                    if ending.state is not None:
                        return ending
                    if or_failure and ending.failing:
                        return ending
                    if unasked and not asks:
                        continue
                heard = listening and self._wakeups.hears(self._listener)
                pause = LAST_LOOK if heard else min(pause * 2, LAST_LOOK)
                rest = pause if deadline is None else min(pause, deadline - time.monotonic())
                if rest <= 0:
                    raise TimeoutError(f"run {run} has no outcome after {timeout:g} s")
                try:
                    async with asyncio.timeout(rest):
                        await told.wait()
                except TimeoutError:
                    continue
        finally:
            self._told[run].remove(told)
            if not self._told[run]:
                del self._told[run]
                if run in self._asked:
                    self._asked.discard(run)
                    await self._forget(run)

    async def _look(self, run: int, *, register: bool) -> Ending:
        segments: list[list[Query[Any]]] = [[runs.outcome([run])]]
        if register:
            segments.insert(0, [waiters.register(self._listener, [run])])
        answers = await self._database.exchange(segments)
        if register and answers[0][0]:
            self._asked.add(run)
        if not answers[-1][0]:
            raise RunNotFound(f"there is no run {run}; it may have been removed by retention")
        ending: Ending = answers[-1][0][0]
        return ending

    async def _forget(self, run: int) -> None:
        try:
            await self._database.run(waiters.forget(self._listener, [run]))
        except Exception:
            # The row goes when the job ends; until then it costs one word to nobody.
            return

    def _listen(self) -> bool:
        if not self._database.settings.notify or self._wakeups.deaf:
            return False
        if not self._subscribed:
            self._subscribed = True
            self._wakeups.subscribe(self._listener, self._hear)
        return True

    def _hear(self, word: str) -> None:
        if word == waiters.MISSED:
            for events in self._told.values():
                for told in events:
                    told.set()
            return
        # Who is told is no longer registered; and it need not have been the end.
        self._asked.discard(int(word))
        for told in self._told.get(int(word), ()):
            told.set()
