"""Where what a job's code comes to is kept, and how the job waits: by a worker, or in a rehearsal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from rota.engine.execute import MARGIN
from rota.engine.stepping import Step
from rota.engine.suspended import Suspended
from rota.errors import ClaimLost, RotaError
from rota.model.replay import Entry
from rota.store import signals

if TYPE_CHECKING:
    from rota.engine.life import Life
    from rota.engine.port import JobPort
    from rota.store.jobs import Claimed

LINGER = 1.0


class Ledger(Protocol):
    linger: float
    """Seconds that are waited for here rather than elsewhere."""

    def is_own(self) -> bool:
        """Whether this is the job's own line of code, not a branch beside it."""

    def now(self) -> datetime: ...

    async def write(self, entries: Sequence[Entry]) -> None:
        """Keep things. Raises ClaimLost."""

    async def look(self, name: str) -> str | None:
        """What was said to the run under a name."""

    def check_free(self) -> None:
        """Raise if the job must not leave: it is inside a transaction."""

    async def pause(self, seconds: float, *, idle: bool) -> None:
        """Wait here. `idle`: nothing of the job does anything meanwhile."""

    async def leave(self) -> NoReturn:
        """End this attempt's code, here and now."""

    def step(self, entry: Entry) -> AbstractAsyncContextManager[Step]: ...

    async def in_thread(self, fn: Callable[[], Any]) -> Any: ...


class JobLedger:
    """The worker's."""

    linger = LINGER

    def __init__(self, life: Life, job: Claimed, port: JobPort) -> None:
        self._life = life
        self._job = job
        self._port = port

    def is_own(self) -> bool:
        own = self._port.task
        # Plain functions have one line, in their thread.
        return own is None or asyncio.current_task() is own

    def now(self) -> datetime:
        return self._life.clock.now()

    async def write(self, entries: Sequence[Entry]) -> None:
        stood = await self._life.scribe.write(self._job, entries)
        for entry in stood:
            if entry.kind == "step" and not await self._port.is_kept(entry):
                raise ClaimLost(
                    f"{entry} of job {self._job.job} was kept by another attempt, which came to something "
                    "else; this one counts for nothing"
                )

    async def look(self, name: str) -> str | None:
        run = self._job.job if self._job.run is None else self._job.run
        found = await self._life.database.insist(signals.look(run, name))
        return found[0] if found else None

    def check_free(self) -> None:
        if self._port.in_transaction:
            raise RotaError(
                f"job {self._job.job} is inside ctx.transaction(), which would be undone if it left: end "
                "that first, then sleep, wait or restart"
            )

    async def pause(self, seconds: float, *, idle: bool) -> None:
        with self._life.desk.parked(self._job) if idle else nullcontext():
            await asyncio.sleep(seconds)

    async def leave(self) -> NoReturn:
        own = self._port.task
        if own is None:
            raise Suspended
        own.cancel()
        fate = self._port.fate
        assert fate is not None
        # Code may take its time, and need not heed it.
        own.get_loop().call_later(MARGIN, self._life.desk.let_go, self._job, fate)
        # Here if this is the job's own line; else when it cancels its branches.
        await asyncio.sleep(1)
        raise asyncio.CancelledError

    def step(self, entry: Entry) -> AbstractAsyncContextManager[Step]:
        return Step(entry, self.in_thread, self._life.tracing.step(self._job, entry.name))

    async def in_thread(self, fn: Callable[[], Any]) -> Any:
        """Run plain code: in the job's own thread, if it has one and waits there."""
        call = self._port.caller()
        if call is not None:
            return await call(fn)
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._life.threads, lambda: context.run(fn)
        )
