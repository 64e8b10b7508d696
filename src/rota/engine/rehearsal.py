"""A run without a database and without a worker: kept in memory, by a clock that moves when the run sleeps.

    code ──▶ what a worker runs it with (stage.py) ──▶ a script in memory
      ▲                                                     │ asleep: the clock is set to when
      └──────── begins anew, with what it has come to ◀─────┘ it would be woken

What is given again, what runs again and what does not fit is decided by the same code as in a worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.engine.call import Call, FlowCall, failed_by
from rota.engine.calls import checked, digest
from rota.engine.stage import Cast, Stage
from rota.errors import ArgumentError, CallsChanged, RotaError, RunFailed
from rota.model import codec
from rota.model.context import CallOf
from rota.model.outcome import Again, Asleep, Done, Ended, Judged, Outcome, Restarted
from rota.model.replay import Entry, Kept
from rota.model.task import Definition
from rota.store.jobs import Claimed

Key = tuple[str, str, int]

Dies = Callable[[Sequence[Entry]], bool]
"""Whether the process dies, now that these were kept. None of them: calls were made, or the code has
returned."""

MOST = 10_000
"""How often a run may be woken, or begin anew."""


@dataclass(slots=True)
class Line:
    """One thing a run has come to, and when."""

    entry: Entry
    at: datetime
    until: datetime | None


@dataclass(slots=True)
class Called:
    """Calls a run has made, and what each has come to."""

    digest: str
    attempt: int
    found: list[Any]


class Script:
    """What a run has come to, what is said to it, and what time it is."""

    def __init__(self, now: datetime) -> None:
        self.began = self.now = now
        self.lines: dict[Key, Line] = {}
        self.signals: dict[str, tuple[datetime, str]] = {}
        self.called: dict[int, Called] = {}
        self.checkpoint: str | None = None
        self.logs: list[str] = []
        self.progress: tuple[float, float | None, str | None] | None = None
        self.ran: Counter[Key] = Counter()
        """How often the code of each step was begun."""
        self.cut: Counter[Key] = Counter()
        """… and of these, how often the process died while it ran."""
        self.calls: list[str] = []

    def copy(self) -> Script:
        """For another run, which goes on from here."""
        other = Script(self.began)
        other.now = self.now
        other.lines = dict(self.lines)
        other.signals = dict(self.signals)
        other.called = dict(self.called)
        other.checkpoint = self.checkpoint
        return other

    def write(self, entries: Sequence[Entry]) -> None:
        """What is there already stands, unless it was open."""
        for entry in entries:
            key = _key(entry)
            known = self.lines.get(key)
            if known is not None and not known.entry.open:
                continue
            until = None if known is None else known.until
            if entry.until is not None:
                until = datetime.fromisoformat(entry.until)
            elif entry.seconds is not None:
                until = self.now + timedelta(seconds=entry.seconds)
            # A copy: whoever asked for it may still write in his.
            self.lines[key] = Line(msgspec.structs.replace(entry), self.now, until)

    def kept(self) -> list[Kept]:
        return [self._kept(line) for line in self.lines.values()]

    def _kept(self, line: Line) -> Kept:
        entry = line.entry
        said = self.heard(entry.name) if entry.kind == "wait" and entry.open else None
        return Kept(
            entry.kind,
            entry.name,
            entry.number,
            entry.position,
            entry.own,
            entry.open,
            entry.tries,
            None if line.until is None else (line.until - self.now).total_seconds(),
            entry.result,
            entry.error,
            said is not None,
            said,
            entry.place,
        )

    def heard(self, name: str) -> str | None:
        """What was said to the run under a name, by now."""
        at, payload = self.signals.get(name, (None, None))
        return payload if at is not None and at <= self.now else None

    def wakes(self, waits: Sequence[Entry]) -> datetime | None:
        """When the first of these is over; None: never."""
        times = [self.lines[_key(each)].until for each in waits]
        times += [
            self.signals[each.name][0]
            for each in waits
            if each.kind == "wait" and each.name in self.signals
        ]
        known = [each for each in times if each is not None]
        return max(min(known), self.now) if known else None

    def forget(self) -> None:
        """The run begins anew: what it has heard is forgotten as well."""
        for line in self.lines.values():
            entry = line.entry
            if entry.kind == "wait" and not entry.open and entry.error is None:
                self.signals.pop(entry.name, None)
        self.lines.clear()
        self.called.clear()
        self.checkpoint = None


def _key(entry: Entry) -> Key:
    return entry.kind, entry.name, entry.number


@dataclass(slots=True)
class Ending:
    """What a rehearsed run came to."""

    state: str = "running"
    result: str | None = None
    error: str | None = None
    raised: BaseException | None = None
    """What came out of its code in the last attempt."""
    waits: tuple[Entry, ...] = ()
    wakes: datetime | None = None
    args: str | None = None
    """What it began anew with, where that was not followed."""
    attempts: int = 1
    crashes: int = 0
    restarts: int = 0
    awake: list[datetime] = field(default_factory=list)
    """When its code began to run, each time."""


class Rehearsal:
    """One run of a task. Until it has ended, or sleeps and will not be woken."""

    def __init__(
        self,
        task: Definition,
        args: str,
        script: Script,
        cast: Cast,
        *,
        dies: Dies | None = None,
        until: datetime | None = None,
        restarts: int = 0,
        limit: int = codec.LARGEST,
    ) -> None:
        self.task = task
        self.args = args
        self.script = script
        self.cast = cast
        self.limit = limit
        self.dies: Dies = dies or (lambda _: False)
        self._until = until
        self._restarts = restarts

    async def run(self) -> Ending:
        ending = Ending()
        while ending.state == "running":
            if len(ending.awake) == MOST:
                raise RotaError(
                    f"{self.task.name} was woken {MOST:,} times in this rehearsal and is not done; say "
                    "until=timedelta(…) to look at the first part of it"
                )
            ending.awake.append(self.script.now)
            job = Claimed(
                *(
                    0,
                    1,
                    ending.attempts,
                    0,
                    0,
                    0,
                    self.task.name,
                    self.task.policy.queue,
                    self.args,
                ),
                *(None, None, None, None, self.script.checkpoint, True),
                kept=self.script.kept(),
            )
            stage = _InMemory(self, job)
            outcome = await stage.perform()
            ending.raised = stage.raised
            if stage.is_over:
                ending.crashes += 1
            else:
                self._take(outcome, ending)
        return ending

    def _take(self, outcome: Outcome, ending: Ending) -> None:
        match outcome:
            case Done(result):
                ending.state, ending.result = "succeeded", result
            case Ended(state, error) | Judged(state, error):
                ending.state, ending.error = state, error
            case Again(delay, _):
                ending.attempts += 1
                self._wait(self.script.now + timedelta(seconds=delay), ending)
            case Asleep(kept, waits):
                self.script.write(kept)
                ending.waits = waits
                self._wait(self.script.wakes(waits), ending)
            case Restarted(args):
                ending.restarts += 1
                if ending.restarts > self._restarts:
                    ending.state, ending.args = "restarted", args
                else:
                    self.args = args
                    self.script.forget()
            case _:
                raise AssertionError(f"no code comes to {outcome} without a worker")

    def _wait(self, wakes: datetime | None, ending: Ending) -> None:
        if wakes is None or (self._until is not None and wakes > self._until):
            ending.state, ending.wakes = "asleep", wakes
            if self._until is not None:
                self.script.now = max(self.script.now, self._until)
        else:
            self.script.now = wakes


class _InMemory(Stage):
    def __init__(self, rehearsal: Rehearsal, job: Claimed) -> None:
        super().__init__(rehearsal.task, job, rehearsal.cast, rehearsal.limit)
        self._rehearsal = rehearsal
        self._script = rehearsal.script
        self._running: list[Key] = []

    def now(self) -> datetime:
        return self._script.now

    def pass_time(self, since: datetime, seconds: float) -> None:
        self._script.now = max(self._script.now, since + timedelta(seconds=seconds))

    async def write(self, entries: Sequence[Entry]) -> None:
        self._script.write(entries)
        await self._live_on(entries)

    async def _live_on(self, entries: Sequence[Entry]) -> None:
        if self._rehearsal.dies(entries):
            lines = self._script.lines
            self._script.cut.update(
                key for key in self._running if key not in lines or lines[key].entry.open
            )
            await self.stop()

    async def begin(self, entry: Entry) -> None:
        self._running.append(_key(entry))
        self._script.ran[_key(entry)] += 1

    def over(self, entry: Entry) -> None:
        self._running.remove(_key(entry))

    async def look(self, name: str) -> str | None:
        return self._script.heard(name)

    async def end(self) -> None:
        await self._live_on(())

    def keep_checkpoint(self, state: str) -> None:
        self._script.checkpoint = state

    def progress(self, job: Claimed, done: float, total: float | None, note: str | None) -> None:
        self._script.progress = (done, total, note)

    def say(self, job: Claimed, message: str) -> None:
        self._script.logs.append(message)

    # Calls

    async def make(
        self,
        job: Claimed,
        number: int,
        calls: Sequence[CallOf[Any]],
        limit: int | None,
        collect: bool,
    ) -> list[Any]:
        made = checked(calls, limit)
        said = digest(made)
        known = self._script.called.get(number)
        if known is not None and known.digest != said:
            raise CallsChanged(
                f"{self.task.name} made other calls before than now, as its call {number + 1}; what a job "
                "calls must follow from its arguments alone"
            )
        if known is None or known.attempt < job.attempt:
            known = await self._call(made, said, known)
            self._script.called[number] = known
            await self._live_on(())
        failed = [each for each in known.found if isinstance(each, RunFailed)]
        if failed and not collect:
            raise failed[0]
        return list(known.found)

    async def _call(
        self, calls: Sequence[Call[Any] | FlowCall], said: str, before: Called | None
    ) -> Called:
        """All at the same time: it is over when the last of them is."""
        began = over = self._script.now
        found: list[Any] = []
        for number, call in enumerate(calls, 1):
            if before is not None and not isinstance(before.found[number - 1], RunFailed):
                found.append(before.found[number - 1])
                continue
            self._script.calls.append(call.name)
            try:
                value, ended = await self._answer(call, number, began)
                found.append(value)
                over = max(over, ended)
            except RunFailed as error:
                found.append(error)
        self._script.now = max(self._script.now, over)
        return Called(said, self.job.attempt, found)

    async def _answer(
        self, call: Call[Any] | FlowCall, number: int, now: datetime
    ) -> tuple[Any, datetime]:
        what = f"call {number} ({call.name})"
        if call.name in self.cast.calls:
            return await self._play(call, what), now
        if isinstance(call, FlowCall):
            raise ArgumentError(
                f"a rehearsal runs no flows: say what {call.name!r} comes to, "
                f"calls={{{call.name!r}: {{…}}}}"
            )
        inner = Rehearsal(call.task, call.start.args, Script(now), self.cast, limit=self.limit)
        ending = await inner.run()
        if ending.state == "succeeded":
            result = None if ending.result is None else ending.result.encode()
            return call.read(result), inner.script.now
        if ending.error is None:
            raise RunFailed(f"{what} did not end: it is {ending.state}")
        raise failed_by(what, ending.error.encode()) from ending.raised

    async def _play(self, call: Call[Any] | FlowCall, what: str) -> Any:
        stand_in = self.cast.calls[call.name]
        value = stand_in
        if callable(stand_in):
            given = call.start.args if isinstance(call, Call) else call.run.input
            words = (
                call.task.arguments.decode(given)
                if isinstance(call, Call)
                else codec.decode(given.encode())
            )
            try:
                value = stand_in(**words)
                if hasattr(value, "__await__"):
                    value = await value
            except Exception as error:
                document = codec.error_document(error, 1, "")
                raise failed_by(what, document.encode()) from error
        if isinstance(call, FlowCall):
            return value
        return call.read(codec.encode(value, f"what {call.name!r} returned", self.limit).encode())
