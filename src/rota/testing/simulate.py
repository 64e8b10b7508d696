"""Simulation of a durable function: no database, no worker, and a year of sleep in milliseconds.

    async def test_a_customer_is_welcomed_and_asked():
        run = await simulate(onboard, user=42, signals={"survey": (timedelta(days=3), {"score": 9})})

        assert run.result == "happy"
        assert run.steps == ["account", "welcome"]
        assert run.slept == timedelta(days=3)

The function runs as in a worker, and the same code writes and replays its journal. Only the storage of the
journal differs, and the clock moves forward whenever the run sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rota.errors import ArgumentError
from rota.testing.simulated_result import SimulatedResult

if TYPE_CHECKING:
    from rota.app import BoundTask, Task
    from rota.engine.simulation.simulation import InMemoryJournal, Simulation
    from rota.model.journal import JournalEntry
    from rota.model.task import TaskDefinition

R = TypeVar("R")

Errors = BaseException | type[BaseException]
Signals = Mapping[str, Any]


class Simulate:
    """Callable: `await simulate(task, …)`, or `simulate.sync(task, …)` in a test that is not async."""

    @overload
    async def __call__(
        self, task: Task[Any, R], /, *args: Any, **kwargs: Any
    ) -> SimulatedResult[R]: ...
    @overload
    async def __call__(self, task: BoundTask[R], /, **kwargs: Any) -> SimulatedResult[R]: ...
    @overload
    async def __call__(
        self, task: Callable[..., Awaitable[R]], /, *args: Any, **kwargs: Any
    ) -> SimulatedResult[R]: ...
    @overload
    async def __call__(
        self, task: Callable[..., R], /, *args: Any, **kwargs: Any
    ) -> SimulatedResult[R]: ...
    async def __call__(
        self,
        task: Any,
        /,
        *args: Any,
        signals: Signals | None = None,
        steps: Mapping[str, Any] | None = None,
        calls: Mapping[str, Any] | None = None,
        fails: Mapping[str, Errors | Sequence[Errors | None]] | None = None,
        crash_after: int | str | None = None,
        now: datetime | None = None,
        until: timedelta | None = None,
        restarts: int = 0,
        history: SimulatedResult[Any] | None = None,
        **kwargs: Any,
    ) -> SimulatedResult[Any]:
        """Run a task with these arguments until it ends, or sleeps and nothing will wake it.

        signals      signals to the run: {"survey": {…}} before it begins, and
                     {"survey": (timedelta(days=3), {…})} after that time, or at a datetime
        steps        stubs for steps, by name: functions, or the values they return
        calls        stubs for tasks called with ctx.run and ctx.map; other tasks are simulated as well
        fails        errors that steps raise: {"charge": [TimeoutError, TimeoutError]} the first two times,
                     {"charge": CardDeclined("no")} always
        crash_after  crash the process after this number of stored steps, or after the step of this name;
                     then the function runs again
        now          time at which the run begins
        until        stop the simulation this long after the start
        restarts     number of ctx.restart(…) calls to follow
        history      continue an earlier simulation, even of other code; with its arguments if none are
                     given

        If the task has parameters with these names, pass it bound: simulate(task.bind(now=1), now=…).
        """
        crash = None if crash_after is None else _CrashAfterStep(crash_after)
        simulation = _build_simulation(
            task,
            args,
            kwargs,
            signals=signals,
            steps=steps,
            calls=calls,
            fails=fails,
            now=now,
            until=until,
            restarts=restarts,
            history=history,
            should_crash=crash,
        )
        simulated = await _run_simulation(simulation)
        if crash is not None and not crash.has_crashed:
            raise ArgumentError(
                f"{simulated.task} was to crash after {crash}, but never reached it; it stored "
                f"{', '.join(map(repr, simulated.steps)) or 'no steps'}"
            )
        return simulated

    def sync(self, task: Any, /, *args: Any, **kwargs: Any) -> SimulatedResult[Any]:
        """Run the simulation in a test that is not async."""
        return _run_sync(lambda: self(task, *args, **kwargs))


class CrashEverywhere:
    """Callable: `await crash_everywhere(task, …)`, or `crash_everywhere.sync(task, …)`."""

    async def __call__(self, task: Any, /, *args: Any, **kwargs: Any) -> SimulatedResult[Any]:
        """Simulate a task once without a crash, and once for each point at which its process could crash.

        Raise AssertionError unless each simulation has the same result and executes each step once. Return
        the simulation without a crash. Accepts the arguments of `simulate` except crash_after. A step that
        was running in another branch at the time of the crash runs again; that is not an error.
        """
        if "crash_after" in kwargs:
            raise ArgumentError("crash_everywhere crashes everywhere: leave crash_after out")
        kwargs.setdefault("now", None if "history" in kwargs else datetime.now(UTC))
        points = _CrashPoints()
        expected = await self._simulate(task, args, kwargs, points)
        for number, point in enumerate(points.reached, 1):
            crashed = await self._simulate(task, args, kwargs, _CrashPoints(number))
            difference = crashed.difference_from(expected)
            if difference:
                raise AssertionError(
                    f"{expected.task} crashed {point} ({number} of {len(points.reached)}): {difference}\n\n"
                    f"without a crash:\n{expected}\n\nwith it:\n{crashed}"
                )
        return expected

    async def _simulate(
        self,
        task: Any,
        args: Sequence[Any],
        keywords: Mapping[str, Any],
        should_crash: _CrashPoints,
    ) -> SimulatedResult[Any]:
        options = {name: keywords[name] for name in _OPTION_NAMES if name in keywords}
        kwargs = {name: value for name, value in keywords.items() if name not in _OPTION_NAMES}
        return await _run_simulation(
            _build_simulation(task, args, kwargs, **options, should_crash=should_crash)
        )

    def sync(self, task: Any, /, *args: Any, **kwargs: Any) -> SimulatedResult[Any]:
        """Run the simulations in a test that is not async."""
        return _run_sync(lambda: self(task, *args, **kwargs))


simulate = Simulate()
crash_everywhere = CrashEverywhere()

_OPTION_NAMES = ("signals", "steps", "calls", "fails", "now", "until", "restarts", "history")


class _CrashAfterStep:
    """Crashes once, after a step."""

    def __init__(self, step: int | str) -> None:
        if isinstance(step, int) and step < 1:
            raise ArgumentError(f"crash_after counts steps, from 1, not {step}")
        self._step = step
        self._stored_steps = 0
        self.has_crashed = False

    def __call__(self, entries: Sequence[JournalEntry]) -> bool:
        for entry in entries:
            if self.has_crashed or entry.kind != "step" or entry.is_open:
                continue
            self._stored_steps += 1
            self.has_crashed = self._step in (self._stored_steps, entry.name)
            if self.has_crashed:
                return True
        return False

    def __str__(self) -> str:
        step = self._step
        return f"step {step!r}" if isinstance(step, str) else f"{step} step(s)"


class _CrashPoints:
    """Records all points at which a process can crash, and crashes at one of them or nowhere."""

    def __init__(self, crash_at: int = 0) -> None:
        self.reached: list[str] = []
        self._crash_at = crash_at

    def __call__(self, entries: Sequence[JournalEntry]) -> bool:
        last = entries[-1] if entries else None
        self.reached.append(f"after {last}" if last else "between two steps, or at its end")
        return len(self.reached) == self._crash_at


def _build_simulation(
    task: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    should_crash: Callable[[Sequence[JournalEntry]], bool] | None,
    signals: Signals | None = None,
    steps: Mapping[str, Any] | None = None,
    calls: Mapping[str, Any] | None = None,
    fails: Mapping[str, Errors | Sequence[Errors | None]] | None = None,
    now: datetime | None = None,
    until: timedelta | None = None,
    restarts: int = 0,
    history: SimulatedResult[Any] | None = None,
) -> Simulation:
    from rota.engine.simulation.attempt import ScriptedErrors, Stubs
    from rota.engine.simulation.simulation import Simulation

    definition, arguments = _resolve_task(task, args, kwargs, history)
    journal = _begin_journal(now, history)
    _add_signals(journal, signals or {})
    return Simulation(
        definition,
        arguments,
        journal,
        Stubs(
            steps or {},
            calls or {},
            {name: ScriptedErrors(each) for name, each in (fails or {}).items()},
        ),
        should_crash=should_crash,
        until=None if until is None else journal.now + until,
        max_restarts=restarts,
    )


def _begin_journal(now: datetime | None, history: SimulatedResult[Any] | None) -> InMemoryJournal:
    """Return an empty journal that begins at `now`, or a copy of the history's."""
    from rota.engine.simulation.simulation import InMemoryJournal

    if now is not None and now.tzinfo is None:
        raise ArgumentError(f"{now.isoformat()} has no time zone; use one, such as timezone.utc")
    if history is None:
        return InMemoryJournal(now or datetime.now(UTC))
    if now is not None:
        raise ArgumentError("a simulation with a history continues at its end: leave out now")
    return history.journal.copy()


async def _run_simulation(simulation: Simulation) -> SimulatedResult[Any]:
    simulated = SimulatedResult[Any](simulation, await simulation.run())
    unused = [name for name in simulation.stubs.errors if name not in simulated.executions]
    if unused:
        raise ArgumentError(
            f"{simulated.task} never reached step {unused[0]!r}, which was to fail; it ran "
            f"{', '.join(map(repr, simulated.executions)) or 'no steps'}"
        )
    return simulated


def _resolve_task(
    task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], history: SimulatedResult[Any] | None
) -> tuple[TaskDefinition, str]:
    """Return the task to run, and its arguments as they would be stored."""
    from rota.engine.execution.call import BoundTask
    from rota.model.codec import MAX_JSON_BYTES
    from rota.model.task import TaskDefinition, TaskPolicy

    if isinstance(task, BoundTask):
        if args or kwargs:
            raise ArgumentError(f"a call of {task.name!r} has its arguments already")
        return task.task, task.start.args
    definition = getattr(task, "_definition", None)
    if not isinstance(definition, TaskDefinition):
        fn = getattr(task, "fn", task)
        if isawaitable(fn) or not callable(fn):
            raise ArgumentError(
                f"simulate takes a task or a function and its arguments, not {type(task).__name__}: "
                "write simulate(task, …), not simulate(task(…))"
            )
        definition = TaskDefinition(fn, getattr(task, "name", fn.__name__), TaskPolicy())
    if history is not None and not args and not kwargs:
        return definition, history.args
    return definition, definition.encode(tuple(args), dict(kwargs), MAX_JSON_BYTES)


def _add_signals(journal: InMemoryJournal, signals: Signals) -> None:
    from rota.model import codec

    for name, value in signals.items():
        at, payload = journal.now, value
        if (
            isinstance(value, tuple)
            and len(value) == 2
            and isinstance(value[0], timedelta | datetime)
        ):
            when, payload = value
            at = journal.now + when if isinstance(when, timedelta) else when
        text = codec.encode(payload, f"the payload of signal {name!r}", codec.MAX_JSON_BYTES)
        # As in a real run, the first signal of a name is kept.
        journal.signals.setdefault(name, (at, text))


def _run_sync(start: Callable[[], Awaitable[SimulatedResult[Any]]]) -> SimulatedResult[Any]:
    async def main() -> SimulatedResult[Any]:
        return await start()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    # Called in an async test: its loop blocks while another loop runs in a thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, main()).result()
