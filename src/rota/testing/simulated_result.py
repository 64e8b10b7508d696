"""Result of a simulation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rota.errors import RotaError, RunFailed
from rota.model import codec
from rota.model.journal import JournalEntry, entry_label

if TYPE_CHECKING:
    from rota.engine.simulation.simulation import SimulatedEntry, Simulation, SimulationOutcome

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A journal entry: a step, a sleep, a wait or a value."""

    kind: str
    name: str
    number: int
    stored_at: datetime
    """Time at which it was stored."""
    until: datetime | None = None
    """End of a sleep, or the deadline of a wait."""
    result: Any = None
    error: str | None = None

    def __str__(self) -> str:
        return entry_label(self.kind, self.name, self.number)


class SimulatedResult(Generic[R]):
    """Outcome of a simulation: its result, its steps, and the time it would have taken."""

    def __init__(self, simulation: Simulation, outcome: SimulationOutcome) -> None:
        journal = simulation.journal
        entries = sorted(journal.entries.values(), key=lambda each: each.entry.position)
        self.task = simulation.task.name
        self.args = simulation.args
        self.journal = journal
        self.state = outcome.state
        """succeeded, failed, quarantined, restarted or sleeping.

        quarantined: the code does not match the history. sleeping: nothing wakes the run, or not before
        `until`.
        """
        self.started_at = journal.started_at
        self.ended_at = journal.now
        """Simulated time at the end."""
        self.steps = [each.entry.name for each in entries if _is_finished_step(each)]
        """Names of the stored steps, in order; a repeated step is listed each time."""
        self.executions: Counter[str] = Counter()
        """Number of executions of each step, by name. Failures and crashes cause repeated executions."""
        for (_, name, _), count in journal.executions.items():
            self.executions[name] += count
        self.history = [_simulated_step(each) for each in entries]
        """Journal entries, in order."""
        self.calls = journal.called_names
        """Names of the tasks that were called."""
        self.attempts = outcome.attempts
        self.crashes = outcome.crashes
        self.logs = journal.logs
        self.progress = journal.progress
        self.awaited_signals = [each.name for each in outcome.waits if each.kind == "wait"]
        """Signals that a sleeping run waits for."""
        if self.state != "sleeping":
            self.awaited_signals = []
        self.wakes_at = outcome.wakes_at
        self.restarted_with = (
            None if outcome.restart_args is None else codec.decode(outcome.restart_args.encode())
        )
        """Arguments of a restart that was not followed."""
        self._definition = simulation.task
        self._outcome = outcome

    @property
    def slept(self) -> timedelta:
        """Time the run would have taken, without the work itself."""
        return self.ended_at - self.started_at

    @property
    def result(self) -> R:
        """The result as `run.result()` returns it. Raise the task's error if it failed."""
        if self.state == "succeeded":
            text = self._outcome.result
            value: R = self._definition.read_result(None if text is None else text.encode())
            return value
        error = self.error
        if error is not None:
            raise error
        raise RotaError(f"{self.task} has no result: {self._missing_result_reason()}")

    @property
    def error(self) -> BaseException | None:
        """The error, if the run failed or does not match its history."""
        if self.state not in ("failed", "quarantined"):
            return None
        raised = self._outcome.raised
        if isinstance(raised, Exception):
            return raised
        document = codec.decode_error((self._outcome.error or "{}").encode())
        return RunFailed(
            f"{self.task} failed at attempt {document.attempt}: {document.type}: {document.message}",
            kind=document.type,
            reason=document.message,
            traceback=document.traceback,
        )

    def assert_once(self) -> None:
        """Raise AssertionError if the code of a step ran more than once."""
        repeated = [
            f"{entry_label(*key)} ran {count} times"
            for key, count in self.journal.executions.items()
            if count > 1
        ]
        if repeated:
            raise AssertionError(f"{', '.join(repeated)}\n\n{self}")

    def difference_from(self, other: SimulatedResult[Any]) -> str | None:
        """Return the first difference in the outcome, or None. A step that a crash interrupted may run
        again.
        """
        if self.state != other.state:
            return f"it {_summary(self)}, where it {_summary(other)}"
        if self._outcome.result != other._outcome.result:
            return f"it returned {self._outcome.result}, where it returned {other._outcome.result}"
        if sorted(self.steps) != sorted(other.steps):
            return f"it reached the steps {self.steps}, where it reached {other.steps}"
        for key, count in self.journal.executions.items():
            extra = count - self.journal.interruptions[key] - other.journal.executions[key]
            if extra:
                return (
                    f"{entry_label(*key)} ran {count} times, where it ran "
                    f"{other.journal.executions[key]}"
                )
        return None

    def _missing_result_reason(self) -> str:
        if self.state == "restarted":
            return f"it restarted with {self.restarted_with}; pass restarts=1 to follow it once"
        if self.wakes_at is not None:
            return f"it sleeps until {self.wakes_at:%Y-%m-%d %H:%M:%S}, which is beyond until="
        names = ", ".join(map(repr, self.awaited_signals))
        return f"it waits for signal {names}, which is not sent; pass signals={{…}}"

    def __str__(self) -> str:
        """Return one line for each journal entry, with the time since the start."""
        lines = [
            f"{_format_duration(each.stored_at - self.started_at):>14}  {each!s:<24} "
            f"{_short_result(each)}".rstrip()
            for each in self.history
        ]
        return "\n".join([*lines, f"{_format_duration(self.slept):>14}  {_summary(self)}"])

    def __repr__(self) -> str:
        slept = _format_duration(self.slept)
        return f"<SimulatedResult {self.task} {self.state}, {len(self.steps)} steps, {slept}>"


def _is_finished_step(simulated: SimulatedEntry) -> bool:
    return simulated.entry.kind == "step" and not simulated.entry.is_open


def _simulated_step(simulated: SimulatedEntry) -> SimulatedStep:
    entry: JournalEntry = simulated.entry
    result = None if entry.result is None else codec.decode(entry.result.encode())
    error = None if entry.error is None else codec.error_type(entry.error)
    return SimulatedStep(
        entry.kind, entry.name, entry.number, simulated.at, simulated.until, result, error
    )


def _summary(simulated: SimulatedResult[Any]) -> str:
    if simulated.state == "succeeded":
        return f"returned {simulated._outcome.result or 'null'}"
    if simulated.error is not None:
        return f"{simulated.state}: {type(simulated.error).__name__}: {simulated.error}"
    return simulated._missing_result_reason()


def _short_result(each: SimulatedStep) -> str:
    if each.kind == "sleep" and each.until is not None:
        return f"for {_format_duration(each.until - each.stored_at)}"
    if each.error is not None:
        return each.error
    if each.result is None:
        return ""
    text = repr(each.result)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _format_duration(duration: timedelta) -> str:
    """Format as days and the remainder: 3 d, 1 d 4:30:00, 0:02:00."""
    remainder = timedelta(seconds=duration.seconds)
    if not duration.days:
        return str(remainder)
    return f"{duration.days} d {remainder}" if remainder else f"{duration.days} d"
