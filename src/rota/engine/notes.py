"""What a job's code has come to and that is not kept yet: it goes with what comes next.

Before anything happens that could depend on it, all of it is kept. A failed step is kept only once the code
has shown, by going on, that it can live with it: in the same line of code, or in the job's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rota.model.replay import Entry


class Notes:
    def __init__(self, write: Callable[[Sequence[Entry]], Awaitable[Any]]) -> None:
        self._write = write
        self._later: list[Entry] = []
        self._underway: list[asyncio.Future[None]] = []
        self._failed: list[tuple[object, Entry]] = []

    def add(self, entry: Entry) -> None:
        self._later.append(entry)

    def add_failed(self, entry: Entry) -> None:
        self._failed.append((asyncio.current_task(), entry))

    def go_on(self, *, own: bool) -> None:
        """The code comes to something else."""
        if not self._failed:
            return
        here = asyncio.current_task()
        handled = [entry for task, entry in self._failed if own or task is here]
        self._failed = [each for each in self._failed if each[1] not in handled]
        self._later += handled

    @property
    def has_wait(self) -> bool:
        return any(entry.kind == "wait" for entry in self._later)

    async def keep(self, entries: Sequence[Entry]) -> None:
        later = self.take()
        if not later:
            await self._write(entries)
            return
        over = asyncio.get_running_loop().create_future()
        self._underway.append(over)
        try:
            await self._write([*later, *entries])
        except BaseException:
            self._later = later + self._later
            raise
        finally:
            self._underway.remove(over)
            over.set_result(None)

    async def flush(self) -> None:
        """Keep all of it."""
        while self._later or self._underway:
            if self._later:
                await self.keep([])
            else:
                # Another branch has begun to: this one may depend on it as well.
                await asyncio.wait(self._underway)

    def take(self) -> list[Entry]:
        later, self._later = self._later, []
        return later
