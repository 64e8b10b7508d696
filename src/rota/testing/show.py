"""What became of a rehearsal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rota.errors import RotaError, RunFailed
from rota.model import codec
from rota.model.replay import Entry, label

if TYPE_CHECKING:
    from rota.engine.rehearsal import Ending, Line, Rehearsal

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Came:
    """One thing the run came to: a step, a sleep, a wait, a value."""

    kind: str
    name: str
    number: int
    at: datetime
    """When it was kept."""
    until: datetime | None = None
    """Of a sleep, and of a wait that may end: when it is over."""
    result: Any = None
    error: str | None = None

    def __str__(self) -> str:
        return label(self.kind, self.name, self.number)


class Show(Generic[R]):
    """What became of a rehearsal: its result, its steps, and how long it would have taken."""

    def __init__(self, rehearsal: Rehearsal, ending: Ending) -> None:
        script = rehearsal.script
        lines = sorted(script.lines.values(), key=lambda each: each.entry.position)
        self.task = rehearsal.task.name
        self.args = rehearsal.args
        self.script = script
        self.state = ending.state
        """succeeded, failed, quarantined (its code does not fit its history), restarted, or asleep: nothing
        wakes it, or not by then."""
        self.began = script.began
        self.now = script.now
        """What time it was in the end."""
        self.steps = [each.entry.name for each in lines if _is_done(each)]
        """The names of the steps that were kept, in order; of repeated ones, each time."""
        self.ran: Counter[str] = Counter()
        """How often the code of steps was run, by name; failures, and a process that died, make it more."""
        for (_, name, _), times in script.ran.items():
            self.ran[name] += times
        self.history = [_came(each) for each in lines]
        """Everything it came to, in order."""
        self.calls = script.calls
        """The tasks it called, by name."""
        self.attempts = ending.attempts
        self.crashes = ending.crashes
        self.logs = script.logs
        self.progress = script.progress
        self.waits_for = [each.name for each in ending.waits if each.kind == "wait"]
        """Of one that is asleep: the signals it waits for."""
        if self.state != "asleep":
            self.waits_for = []
        self.wakes = ending.wakes
        self.restarted_with = None if ending.args is None else codec.decode(ending.args.encode())
        """What it began anew with, if that was not followed."""
        self._definition = rehearsal.task
        self._ending = ending

    @property
    def slept(self) -> timedelta:
        """How long it would have taken, but for the work itself."""
        return self.now - self.began

    @property
    def result(self) -> R:
        """What it returned, as `run.result()` would have it. Raises what came out of it if it failed."""
        if self.state == "succeeded":
            text = self._ending.result
            value: R = self._definition.read_result(None if text is None else text.encode())
            return value
        error = self.error
        if error is not None:
            raise error
        raise RotaError(f"{self.task} has no result: {self._why()}")

    @property
    def error(self) -> BaseException | None:
        """What came out of it, if it failed or does not fit its history."""
        if self.state not in ("failed", "quarantined"):
            return None
        raised = self._ending.raised
        if isinstance(raised, Exception):
            return raised
        document = codec.read_error((self._ending.error or "{}").encode())
        return RunFailed(
            f"{self.task} failed at attempt {document.attempt}: {document.type}: {document.message}",
            kind=document.type,
            reason=document.message,
            traceback=document.traceback,
        )

    def assert_once(self) -> None:
        """Make sure that the code of each step ran once."""
        twice = [
            f"{label(*key)} ran {times} times"
            for key, times in self.script.ran.items()
            if times > 1
        ]
        if twice:
            raise AssertionError(f"{', '.join(twice)}\n\n{self}")

    def differs_from(self, other: Show[Any]) -> str | None:
        """In what, if at all, this came to something else; a step that was cut off may run again."""
        if self.state != other.state:
            return f"it {_said(self)}, where it {_said(other)}"
        if self._ending.result != other._ending.result:
            return f"it returned {self._ending.result}, where it returned {other._ending.result}"
        if sorted(self.steps) != sorted(other.steps):
            return f"it came to the steps {self.steps}, where it came to {other.steps}"
        for key, times in self.script.ran.items():
            again = times - self.script.cut[key] - other.script.ran[key]
            if again:
                return f"{label(*key)} ran {times} times, where it ran {other.script.ran[key]}"
        return None

    def _why(self) -> str:
        if self.state == "restarted":
            return f"it began anew with {self.restarted_with}; restarts=1 follows it once"
        if self.wakes is not None:
            return f"it sleeps until {self.wakes:%Y-%m-%d %H:%M:%S}, which is beyond until="
        names = ", ".join(map(repr, self.waits_for))
        return f"it waits for signal {names}, which nobody sends; say signals={{…}}"

    def __str__(self) -> str:
        """What happened, a line each, with how long after the beginning."""
        lines = [
            f"{_since(each.at - self.began):>14}  {each!s:<24} {_short(each)}".rstrip()
            for each in self.history
        ]
        return "\n".join([*lines, f"{_since(self.slept):>14}  {_said(self)}"])

    def __repr__(self) -> str:
        return f"<Show {self.task} {self.state}, {len(self.steps)} steps, {_since(self.slept)}>"


def _is_done(line: Line) -> bool:
    return line.entry.kind == "step" and not line.entry.open


def _came(line: Line) -> Came:
    entry: Entry = line.entry
    result = None if entry.result is None else codec.decode(entry.result.encode())
    error = None if entry.error is None else codec.error_type(entry.error)
    return Came(entry.kind, entry.name, entry.number, line.at, line.until, result, error)


def _said(show: Show[Any]) -> str:
    if show.state == "succeeded":
        return f"returned {show._ending.result or 'null'}"
    if show.error is not None:
        return f"{show.state}: {type(show.error).__name__}: {show.error}"
    return show._why()


def _short(each: Came) -> str:
    if each.kind == "sleep" and each.until is not None:
        return f"for {_since(each.until - each.at)}"
    if each.error is not None:
        return each.error
    if each.result is None:
        return ""
    text = repr(each.result)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _since(span: timedelta) -> str:
    """Days, and what is left of them: 3 d, 1 d 4:30:00, 0:02:00."""
    rest = timedelta(seconds=span.seconds)
    if not span.days:
        return str(rest)
    return f"{span.days} d {rest}" if rest else f"{span.days} d"
