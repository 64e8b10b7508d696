"""Writes down what the code of all jobs comes to: steps, progress, what it says.

Steps are waited for. What piles up during one round trip goes out in the next, in one transaction, so that
many jobs share the price of a commit and none waits for company. Progress and lines of a log are not waited
for: of progress only the last is kept, and both are written a little later.

A write whose answer never came is made again: what is there already stands.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from rota.engine.hand import Hand
from rota.errors import ClaimLost
from rota.model import codec
from rota.model.replay import Entry
from rota.store import failures, steps
from rota.store.database import Database
from rota.store.jobs import Claimed
from rota.store.steps import Progress, Unkept

log = logging.getLogger("rota")

MOST = 1000
"""Steps in one transaction."""

SOON = 0.25
"""Seconds after which progress and logs are written."""

MOST_LINES = 10_000
"""Lines that wait to be written: beyond that the oldest are dropped."""


class _Page(NamedTuple):
    """What one job waits to have written."""

    job: Claimed
    entries: Sequence[Entry]
    done: asyncio.Future[list[Entry]]


class Scribe:
    def __init__(self, database: Database, worker: int) -> None:
        self._database = database
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._hand = Hand(database)
        self._pile: list[_Page] = []
        self._writing: asyncio.Task[None] | None = None
        self._progress: dict[int, Progress] = {}
        self._lines: list[tuple[Claimed, float, str]] = []
        self._noting: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] = self._loop.create_future()

    # Steps

    async def write(self, job: Claimed, entries: Sequence[Entry]) -> list[Entry]:
        """Keep steps. Answers those of which there is one already, which stands. Raises ClaimLost."""
        done: asyncio.Future[list[Entry]] = self._loop.create_future()
        self._pile.append(_Page(job, entries, done))
        if self._writing is None:
            self._writing = self._loop.create_task(self._write())
        return await done

    async def _write(self) -> None:
        try:
            while self._pile:
                pages, size = [], 0
                while self._pile and size < MOST:
                    pages.append(self._pile.pop(0))
                    size += len(pages[-1].entries)
                await self._send(pages)
        finally:
            self._writing = None

    async def _send(self, pages: list[_Page]) -> None:
        entries = [(page.job, entry) for page in pages for entry in page.entries]
        claims = [page.job.claim for page in pages]
        try:
            unkept = await self._insist(entries)
        except Exception as error:
            if len(pages) > 1 and not failures.is_passing(error):
                # One of them cannot be stored: the others need not suffer for it.
                for page in pages:
                    await self._send([page])
                return
            for page in pages:
                if not page.done.done():
                    page.done.set_exception(error)
            return
        except BaseException:
            for page in pages:
                page.done.cancel()
            raise
        if not unkept:
            for page in pages:
                if not page.done.done():
                    page.done.set_result([])
            return
        by_index = {each.index: each for each in unkept}
        index = 0
        for page, claim in zip(pages, claims, strict=True):
            missed = [by_index.get(index + at) for at in range(1, len(page.entries) + 1)]
            index += len(page.entries)
            if page.done.done():
                continue
            if any(each is not None and not each.held for each in missed):
                if page.job.claim != claim:
                    # It was given a claim of its own meanwhile.
                    self._pile.append(page)
                    continue
                page.done.set_exception(
                    ClaimLost(
                        f"job {page.job.job} is no longer held by this worker: nothing was kept"
                    )
                )
            else:
                stood = [entry for entry, each in zip(page.entries, missed, strict=True) if each]
                page.done.set_result(stood)

    async def _insist(self, entries: Sequence[tuple[Claimed, Entry]]) -> list[Unkept]:
        query = steps.record(self._worker, entries)
        patience = self._database.settings.patience
        until = time.monotonic() + patience
        pause = 0.05
        while True:
            try:
                [[unkept]] = await self._hand.send([[query]])
                return unkept
            except BaseException as error:
                await self._hand.let_go()
                passing = isinstance(error, Exception) and failures.is_passing(error)
                if not passing or time.monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    # What is not waited for. Called from any thread.

    def progress(self, job: Claimed, done: float, total: float | None, note: str | None) -> None:
        # As it is held now: when it is written the job may have left.
        told = Progress(
            job.claim, job.job, done, total, None if note is None else codec.storable(note)
        )
        self._loop.call_soon_threadsafe(self._note, told, None)

    def say(self, job: Claimed, message: str) -> None:
        line = (job, time.monotonic(), codec.storable(message))
        self._loop.call_soon_threadsafe(self._note, None, line)

    def _note(self, progress: Progress | None, line: tuple[Claimed, float, str] | None) -> None:
        if progress is not None:
            self._progress[progress.job] = progress
        if line is not None:
            self._lines.append(line)
            if len(self._lines) > MOST_LINES:
                del self._lines[: MOST_LINES // 10]
        if self._noting is None:
            self._noting = self._loop.create_task(self._note_soon())

    async def _note_soon(self) -> None:
        try:
            while self._progress or self._lines:
                await asyncio.wait([self._closing], timeout=SOON)
                await self._write_notes()
        except Exception as error:
            log.warning("progress of jobs could not be written: %s", error)
        finally:
            self._noting = None

    async def _write_notes(self) -> None:
        progress, self._progress = self._progress, {}
        lines, self._lines = self._lines, []
        now = time.monotonic()
        if progress:
            await self._database.insist(steps.progress(list(progress.values())))
        if lines:
            said = [(job, now - at, message) for job, at, message in lines]
            await self._database.insist(steps.log(said))

    async def close(self) -> None:
        """Write what there still is."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if not self._closing.done():
            self._closing.set_result(None)
        if self._noting is not None:
            await asyncio.wait([self._noting])
        await self._hand.let_go()
