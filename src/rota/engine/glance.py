"""Whether a job that is under way goes on with this code: a look at where the code goes, and no further.

The job's arguments are read as a worker would read them. Then its function runs with what the job has come
to, until it asks for something new: there the glance ends, before anything happens. So nothing is started,
kept or written, and no step runs; but what the function does between its steps, it does here, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from inspect import Parameter
from typing import Any, Literal, NoReturn, Protocol, TypeVar, cast

import msgspec

from rota.engine.call import Call, FlowCall
from rota.engine.calls import Calls, checked, digest
from rota.engine.clock import Clock
from rota.engine.stage import Cast, Stage
from rota.engine.suspended import Suspended
from rota.errors import (
    CallsChanged,
    DefinitionError,
    HandBack,
    ReplayMismatch,
    RetryLater,
    RotaError,
)
from rota.model import codec
from rota.model.context import CallOf, Failure
from rota.model.outcome import Again, Ended, Judged
from rota.model.replay import Entry
from rota.model.task import Definition
from rota.store import runs
from rota.store.database import Database
from rota.store.jobs import Claimed
from rota.store.query import Query

Row = TypeVar("Row")

WITHIN = 10.0
"""Seconds in which the code has to come to where it was."""

Problem = Literal["arguments", "replay", "error"]


class Trouble(msgspec.Struct, frozen=True):
    """Why a job would not go on."""

    problem: Problem
    reason: str
    given_up: bool = False
    """The code runs on, if it runs in a thread."""


class Reader(Protocol):
    """Asks the database, and writes nothing."""

    async def insist(self, query: Query[Row]) -> list[Row]: ...


_looked_at: ContextVar[_Glance | None] = ContextVar("rota glance", default=None)

_ids = msgspec.json.Decoder(dict[str, int])


def taken(inputs: str | None) -> dict[str, int]:
    """The jobs whose results a job takes, by the words it takes them by."""
    return _ids.decode(inputs) if inputs else {}


def misfit(
    task: Definition, args: str, inputs: str | None, known: Mapping[int, str | None]
) -> Trouble | None:
    """Whether a job's arguments fit no longer, with the results it takes, as far as these are known: what
    jobs that have not ended will come to is taken to be right."""
    ids = taken(inputs)
    parts = [f'"{word}":{known[id] or "null"}' for word, id in ids.items() if id in known]
    own = args[1:-1].strip()
    whole = "{" + ",".join([own, *parts] if own else parts) + "}"
    pending = {word for word, id in ids.items() if id not in known}
    try:
        for taker in filter(None, (task, task.skip_if)):
            _reader(taker, pending).decode(whole)
    except (msgspec.ValidationError, ValueError) as error:
        reason = codec.describe(error) if isinstance(error, msgspec.ValidationError) else str(error)
        return Trouble("arguments", reason)
    except (DefinitionError, NotImplementedError) as error:
        return Trouble("arguments", str(error))
    return None


def _reader(task: Definition, pending: set[str]) -> msgspec.json.Decoder[dict[str, Any]]:
    if not pending:
        return task.arguments
    return task.decoder_of(
        {
            word: (task.hint(word), parameter.default is Parameter.empty)
            for word, parameter in task.parameters.items()
            if word not in pending
        },
        "an argument",
    )


async def go_no_further() -> NoReturn:
    """For what would have an effect, where code is only looked at."""
    stage = _looked_at.get()
    if stage is None:
        raise RotaError("nothing is started while code is only looked at")
    stage.refuse("")


async def glance(
    task: Definition, job: Claimed, clock: Clock, reader: Reader, limit: int
) -> Trouble | None:
    """Where the code goes with what the job has come to. None: on."""
    stage = _Glance(task, job, clock, reader, limit)
    _looked_at.set(stage)
    try:
        async with asyncio.timeout(WITHIN):
            outcome = await stage.perform()
    except TimeoutError:
        reason = f"the code did not come to where it was within {WITHIN:g} s, and was left alone"
        return Trouble("error", reason, given_up=True)
    raised = stage.raised
    if stage.is_over:
        return None
    match outcome:
        case Judged(error=error) if isinstance(raised, ReplayMismatch):
            return Trouble("replay", f"comes to {raised.asked} where it had come to {raised.kept}")
        case Judged(error=error) | Again(error=error) | Ended(state="failed", error=error):
            if isinstance(raised, RetryLater | HandBack):
                return None
            if isinstance(raised, CallsChanged):
                return Trouble("replay", str(raised))
            said = codec.read_error(None if error is None else error.encode())
            return Trouble("error", f"{said.type}: {said.message}".rstrip(": "))
    return None


class _Glance(Stage):
    """Gives what was kept, and stops at whatever was not."""

    def __init__(
        self, task: Definition, job: Claimed, clock: Clock, reader: Reader, limit: int
    ) -> None:
        super().__init__(task, job, Cast(), limit)
        self._clock = clock
        self._reader = reader
        # It only asks what calls came to.
        nobody: Any = None
        self._asks = Calls(cast(Database, reader), nobody, nobody, 0, nobody)

    def now(self) -> datetime:
        return self._clock.now()

    async def write(self, entries: Sequence[Entry]) -> None:
        await self.stop()

    async def begin(self, entry: Entry) -> None:
        await self.stop()

    async def look(self, name: str) -> str | None:
        await self.stop()

    async def make(
        self,
        job: Claimed,
        number: int,
        calls: Sequence[CallOf[Any]],
        limit: int | None,
        collect: bool,
    ) -> list[Any]:
        made: list[Call[Any] | FlowCall] = checked(calls, limit)
        if not made:
            return []
        known = await self._reader.insist(runs.calls(job.job, number))
        if not known:
            await self.stop()
        [before] = known
        if before.digest != digest(made):
            raise CallsChanged(
                f"makes other calls than it had made (run {before.run}), as its call {number + 1}"
            )
        if before.state is None or (before.state != "succeeded" and not collect):
            await self.stop()  # they are waited for, or made once more
        called = await self._reader.insist(runs.called(before.run))
        return await self._asks.results(made, called, collect)

    async def failures(self, job: Claimed) -> list[Failure]:
        return await self._asks.failures(job)

    def refuse(self, what: str) -> NoReturn:
        # It would happen again each time: from here on nothing was kept that could be given.
        self.is_over = True
        raise asyncio.CancelledError if self.task.is_async else Suspended
