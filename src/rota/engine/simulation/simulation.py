"""Simulated run in memory, without a database or a worker; its clock advances when the run sleeps.

    code ──▶ simulated worker (attempt.py) ──▶ journal in memory
      ▲                                            │ sleeping: the clock is set
      └──────── runs again, with its journal ◀─────┘ to the wake-up time

Replay, retries and mismatches are decided by the same code as in a worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.engine.execution.call import BoundFlow, BoundTask, run_failed
from rota.engine.execution.child_calls import digest, validate_calls
from rota.engine.simulation.attempt import SimulatedAttempt, Stubs
from rota.errors import ArgumentError, ChildCallsChanged, RotaError, RunFailed
from rota.model import codec
from rota.model.context import BoundCall
from rota.model.journal import JournalEntry, StoredEntry
from rota.model.outcome import (
    FinalOutcome,
    Outcome,
    Quarantined,
    Rejected,
    Restarted,
    Retried,
    Succeeded,
    Suspended,
)
from rota.model.task import TaskDefinition
from rota.store.jobs import ClaimedJob

EntryKey = tuple[str, str, int]

CrashCondition = Callable[[Sequence[JournalEntry]], bool]
"""True if the process crashes after these entries were stored. Without entries: child calls were made, or
the code has returned.
"""

MAX_WAKEUPS = 10_000
"""Attempts of one run, including wake-ups and restarts, after which the simulation gives up."""


@dataclass(slots=True)
class SimulatedEntry:
    """Journal entry of a run, and its time."""

    entry: JournalEntry
    at: datetime
    until: datetime | None


@dataclass(slots=True)
class SimulatedCalls:
    """Child calls of a run, and their results."""

    digest: str
    attempt: int
    results: list[Any]


class InMemoryJournal:
    """Journal, signals and clock of a simulated run."""

    def __init__(self, now: datetime) -> None:
        self.started_at = self.now = now
        self.entries: dict[EntryKey, SimulatedEntry] = {}
        self.signals: dict[str, tuple[datetime, str]] = {}
        self.child_calls: dict[int, SimulatedCalls] = {}
        self.checkpoint: str | None = None
        self.logs: list[str] = []
        self.progress: tuple[float, float | None, str | None] | None = None
        self.executions: Counter[EntryKey] = Counter()
        """Number of times the code of each step was started."""
        self.interruptions: Counter[EntryKey] = Counter()
        """Number of times the process crashed while the step ran."""
        self.called_names: list[str] = []

    def copy(self) -> InMemoryJournal:
        """Return a copy for another run that continues from this state."""
        other = InMemoryJournal(self.started_at)
        other.now = self.now
        other.entries = dict(self.entries)
        other.signals = dict(self.signals)
        other.child_calls = dict(self.child_calls)
        other.checkpoint = self.checkpoint
        return other

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Store entries. An existing entry is kept unless it was open."""
        for entry in entries:
            key = _entry_key(entry)
            known = self.entries.get(key)
            if known is not None and not known.entry.is_open:
                continue
            until = None if known is None else known.until
            if entry.until is not None:
                until = datetime.fromisoformat(entry.until)
            elif entry.seconds is not None:
                until = self.now + timedelta(seconds=entry.seconds)
            # A copy, because the caller may still change its entry.
            self.entries[key] = SimulatedEntry(msgspec.structs.replace(entry), self.now, until)

    def stored_entries(self) -> list[StoredEntry]:
        return [self._stored_entry(simulated) for simulated in self.entries.values()]

    def _stored_entry(self, simulated: SimulatedEntry) -> StoredEntry:
        entry = simulated.entry
        payload = self.read_signal(entry.name) if entry.kind == "wait" and entry.is_open else None
        return StoredEntry(
            entry.kind,
            entry.name,
            entry.number,
            entry.position,
            entry.in_main_branch,
            entry.is_open,
            entry.tries,
            None if simulated.until is None else (simulated.until - self.now).total_seconds(),
            entry.result,
            entry.error,
            payload is not None,
            payload,
            entry.branch_key,
        )

    def read_signal(self, name: str) -> str | None:
        """Return the payload of a signal that has been sent by now."""
        at, payload = self.signals.get(name, (None, None))
        return payload if at is not None and at <= self.now else None

    def wake_time(self, waits: Sequence[JournalEntry]) -> datetime | None:
        """Return when the first of these waits ends, or None if none does."""
        times = [self.entries[_entry_key(each)].until for each in waits]
        times += [
            self.signals[each.name][0]
            for each in waits
            if each.kind == "wait" and each.name in self.signals
        ]
        known = [each for each in times if each is not None]
        return max(min(known), self.now) if known else None

    def reset(self) -> None:
        """Clear the journal for a restart, including the signals that were consumed."""
        for simulated in self.entries.values():
            entry = simulated.entry
            if entry.kind == "wait" and not entry.is_open and entry.error is None:
                self.signals.pop(entry.name, None)
        self.entries.clear()
        self.child_calls.clear()
        self.checkpoint = None


def _entry_key(entry: JournalEntry) -> EntryKey:
    return entry.kind, entry.name, entry.number


@dataclass(slots=True)
class SimulationOutcome:
    """Outcome of a simulated run."""

    state: str = "running"
    result: str | None = None
    error: str | None = None
    raised: BaseException | None = None
    """Exception that its code raised in the last attempt."""
    waits: tuple[JournalEntry, ...] = ()
    wakes_at: datetime | None = None
    restart_args: str | None = None
    """Arguments of a restart that was not followed."""
    attempts: int = 1
    crashes: int = 0
    restarts: int = 0
    started_times: list[datetime] = field(default_factory=list)
    """Times at which its code started to run."""


class Simulation:
    """Run of a task, until it has ended, or sleeps without being woken."""

    def __init__(
        self,
        task: TaskDefinition,
        args: str,
        journal: InMemoryJournal,
        stubs: Stubs,
        *,
        should_crash: CrashCondition | None = None,
        until: datetime | None = None,
        max_restarts: int = 0,
        limit: int = codec.MAX_JSON_BYTES,
    ) -> None:
        self.task = task
        self.args = args
        self.journal = journal
        self.stubs = stubs
        self.limit = limit
        self.should_crash: CrashCondition = should_crash or (lambda _: False)
        self._until = until
        self._max_restarts = max_restarts

    async def run(self) -> SimulationOutcome:
        simulation_outcome = SimulationOutcome()
        while simulation_outcome.state == "running":
            if len(simulation_outcome.started_times) == MAX_WAKEUPS:
                raise RotaError(
                    f"{self.task.name} was woken {MAX_WAKEUPS:,} times in this simulation and has "
                    "not ended; pass until=timedelta(…) to simulate the first part"
                )
            simulation_outcome.started_times.append(self.journal.now)
            job = ClaimedJob(
                *(
                    0,
                    1,
                    simulation_outcome.attempts,
                    0,
                    0,
                    0,
                    self.task.name,
                    self.task.policy.queue,
                    self.args,
                ),
                *(None, None, None, None, self.journal.checkpoint, True),
                stored_entries=self.journal.stored_entries(),
            )
            attempt = _InMemoryAttempt(self, job)
            outcome = await attempt.run()
            simulation_outcome.raised = attempt.raised
            if attempt.is_discarded:
                simulation_outcome.crashes += 1
            else:
                self._apply(outcome, simulation_outcome)
        return simulation_outcome

    def _apply(self, outcome: Outcome, simulation_outcome: SimulationOutcome) -> None:
        match outcome:
            case Succeeded(result):
                simulation_outcome.state, simulation_outcome.result = "succeeded", result
            case FinalOutcome(state, error) | Rejected(state, error):
                simulation_outcome.state, simulation_outcome.error = state, error
            case Quarantined(error):
                simulation_outcome.state, simulation_outcome.error = "quarantined", error
            case Retried(delay, _):
                simulation_outcome.attempts += 1
                self._wait_until(self.journal.now + timedelta(seconds=delay), simulation_outcome)
            case Suspended(entries, waits):
                self.journal.write(entries)
                simulation_outcome.waits = waits
                self._wait_until(self.journal.wake_time(waits), simulation_outcome)
            case Restarted(args):
                simulation_outcome.restarts += 1
                if simulation_outcome.restarts > self._max_restarts:
                    simulation_outcome.state, simulation_outcome.restart_args = "restarted", args
                else:
                    self.args = args
                    self.journal.reset()
            case _:
                raise AssertionError(f"{outcome} is impossible without a worker")

    def _wait_until(self, wakes_at: datetime | None, simulation_outcome: SimulationOutcome) -> None:
        if wakes_at is None or (self._until is not None and wakes_at > self._until):
            simulation_outcome.state, simulation_outcome.wakes_at = "sleeping", wakes_at
            if self._until is not None:
                self.journal.now = max(self.journal.now, self._until)
        else:
            self.journal.now = wakes_at


class _InMemoryAttempt(SimulatedAttempt):
    def __init__(self, simulation: Simulation, job: ClaimedJob) -> None:
        super().__init__(simulation.task, job, simulation.stubs, simulation.limit)
        self._simulation = simulation
        self._memory_journal = simulation.journal
        self._running_steps: list[EntryKey] = []

    def now(self) -> datetime:
        return self._memory_journal.now

    def advance_clock(self, since: datetime, seconds: float) -> None:
        self._memory_journal.now = max(self._memory_journal.now, since + timedelta(seconds=seconds))

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        self._memory_journal.write(entries)
        await self._crash_if_due(entries)

    async def _crash_if_due(self, entries: Sequence[JournalEntry]) -> None:
        if self._simulation.should_crash(entries):
            stored = self._memory_journal.entries
            self._memory_journal.interruptions.update(
                key for key in self._running_steps if key not in stored or stored[key].entry.is_open
            )
            await self.discard()

    async def on_step_begin(self, entry: JournalEntry) -> None:
        self._running_steps.append(_entry_key(entry))
        self._memory_journal.executions[_entry_key(entry)] += 1

    def on_step_end(self, entry: JournalEntry) -> None:
        self._running_steps.remove(_entry_key(entry))

    async def read_signal(self, name: str) -> str | None:
        return self._memory_journal.read_signal(name)

    async def on_return(self) -> None:
        await self._crash_if_due(())

    def store_checkpoint(self, state: str) -> None:
        self._memory_journal.checkpoint = state

    def progress(self, job: ClaimedJob, done: float, total: float | None, note: str | None) -> None:
        self._memory_journal.progress = (done, total, note)

    def log(self, job: ClaimedJob, message: str) -> None:
        self._memory_journal.logs.append(message)

    # Child calls

    async def run_calls(
        self,
        job: ClaimedJob,
        number: int,
        calls: Sequence[BoundCall[Any]],
        concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]:
        bound = validate_calls(calls, concurrency)
        calls_digest = digest(bound)
        previous = self._memory_journal.child_calls.get(number)
        if previous is not None and previous.digest != calls_digest:
            raise ChildCallsChanged(
                f"call {number + 1} of {self.task.name} differs from an earlier attempt; the calls of a "
                "job must depend on its arguments alone"
            )
        if previous is None or previous.attempt < job.attempt:
            previous = await self._run_checked_calls(bound, calls_digest, previous)
            self._memory_journal.child_calls[number] = previous
            await self._crash_if_due(())
        failed = [each for each in previous.results if isinstance(each, RunFailed)]
        if failed and not return_exceptions:
            raise failed[0]
        return list(previous.results)

    async def _run_checked_calls(
        self,
        calls: Sequence[BoundTask[Any] | BoundFlow],
        calls_digest: str,
        previous: SimulatedCalls | None,
    ) -> SimulatedCalls:
        """Run the calls as if at the same time: they end when the last of them ends."""
        started_at = finished_at = self._memory_journal.now
        results: list[Any] = []
        for number, call in enumerate(calls, 1):
            if previous is not None and not isinstance(previous.results[number - 1], RunFailed):
                results.append(previous.results[number - 1])
                continue
            self._memory_journal.called_names.append(call.name)
            try:
                value, ended_at = await self._run_call(call, number, started_at)
                results.append(value)
                finished_at = max(finished_at, ended_at)
            except RunFailed as error:
                results.append(error)
        self._memory_journal.now = max(self._memory_journal.now, finished_at)
        return SimulatedCalls(calls_digest, self.job.attempt, results)

    async def _run_call(
        self, call: BoundTask[Any] | BoundFlow, number: int, now: datetime
    ) -> tuple[Any, datetime]:
        subject = f"call {number} ({call.name})"
        if call.name in self.stubs.calls:
            return await self._run_stub(call, subject), now
        if isinstance(call, BoundFlow):
            raise ArgumentError(
                f"a simulation runs no flows: give a stand-in for {call.name!r}, "
                f"calls={{{call.name!r}: {{…}}}}"
            )
        simulation = Simulation(
            call.task, call.start.args, InMemoryJournal(now), self.stubs, limit=self.limit
        )
        simulation_outcome = await simulation.run()
        if simulation_outcome.state == "succeeded":
            result = (
                None if simulation_outcome.result is None else simulation_outcome.result.encode()
            )
            return call.read(result), simulation.journal.now
        if simulation_outcome.error is None:
            raise RunFailed(f"{subject} did not end: it is {simulation_outcome.state}")
        raise run_failed(subject, simulation_outcome.error.encode()) from simulation_outcome.raised

    async def _run_stub(self, call: BoundTask[Any] | BoundFlow, subject: str) -> Any:
        stub = self.stubs.calls[call.name]
        value = stub
        if callable(stub):
            encoded = call.start.args if isinstance(call, BoundTask) else call.run.input
            kwargs = (
                call.task.arguments_decoder.decode(encoded)
                if isinstance(call, BoundTask)
                else codec.decode(encoded.encode())
            )
            try:
                value = stub(**kwargs)
                if hasattr(value, "__await__"):
                    value = await value
            except Exception as error:
                document = codec.encode_error(error, 1, "")
                raise run_failed(subject, document.encode()) from error
        if isinstance(call, BoundFlow):
            return value
        return call.read(codec.encode(value, f"the result of {call.name!r}", self.limit).encode())
