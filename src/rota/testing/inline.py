"""A durable function run inline: no database, no worker, and a year of sleep in milliseconds.

    async def test_a_customer_is_welcomed_and_asked():
        show = await rehearse(onboard, user=42, signals={"survey": (timedelta(days=3), {"score": 9})})

        assert show.result == "happy"
        assert show.steps == ["account", "welcome"]
        assert show.slept == timedelta(days=3)

The function is run as a worker runs it, and what it comes to is kept and given again by the same code; only
the place where it is kept is another, and the clock is set forward whenever the run sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rota.errors import ArgumentError
from rota.testing.show import Show

if TYPE_CHECKING:
    from rota.app import Call, Task
    from rota.engine.rehearsal import Rehearsal, Script
    from rota.model.replay import Entry
    from rota.model.task import Definition

R = TypeVar("R")

Errors = BaseException | type[BaseException]
Signals = Mapping[str, Any]


class Rehearse:
    """`await rehearse(task, …)`, or `rehearse.blocking(task, …)` in a test that is not async."""

    @overload
    async def __call__(self, task: Task[Any, R], /, *args: Any, **given: Any) -> Show[R]: ...
    @overload
    async def __call__(self, task: Call[R], /, **given: Any) -> Show[R]: ...
    @overload
    async def __call__(
        self, task: Callable[..., Awaitable[R]], /, *args: Any, **given: Any
    ) -> Show[R]: ...
    @overload
    async def __call__(self, task: Callable[..., R], /, *args: Any, **given: Any) -> Show[R]: ...
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
        history: Show[Any] | None = None,
        **kwargs: Any,
    ) -> Show[Any]:
        """Run a task with these arguments until it has ended, or sleeps and nothing will wake it.

        signals      what is said to the run: {"survey": {…}} before it begins, and
                     {"survey": (timedelta(days=3), {…})} so long after, or at a datetime
        steps        stand-ins for steps, by name: functions, or what they would have returned
        calls        the same for what it calls with ctx.run and ctx.map; other tasks are rehearsed as well
        fails        what steps raise: {"charge": [TimeoutError, TimeoutError]} the first two times,
                     {"charge": CardDeclined("no")} always
        crash_after  the process dies when so many steps have been kept, or the step of this name; then the
                     function begins anew
        now          when it begins
        until        look no further than so long after that
        restarts     how many times ctx.restart(…) is followed
        history      go on where this other rehearsal is, be it of other code; with its arguments if
                     none are given

        Where a task has arguments of such names, pass it as a call: rehearse(task.call(now=1), now=…).
        """
        crash = None if crash_after is None else _After(crash_after)
        rehearsal = _prepare(
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
            dies=crash,
        )
        show = await _run(rehearsal)
        if crash is not None and not crash.struck:
            raise ArgumentError(
                f"{show.task} was to crash after {crash}, and never came that far: it kept "
                f"{', '.join(map(repr, show.steps)) or 'no steps'}"
            )
        return show

    def blocking(self, task: Any, /, *args: Any, **given: Any) -> Show[Any]:
        """The same, for tests that do not await."""
        return _wait(lambda: self(task, *args, **given))


class CrashEverywhere:
    """`await crash_everywhere(task, …)`, or `crash_everywhere.blocking(task, …)`."""

    async def __call__(self, task: Any, /, *args: Any, **given: Any) -> Show[Any]:
        """Rehearse a task once as it is, then once for each point at which its process could die, and make
        sure that it comes to the same every time, and does each step once. Answers the first.

        Takes what `rehearse` takes, but crash_after. A step that was under way in another branch when the
        process died runs again, and may.
        """
        if "crash_after" in given:
            raise ArgumentError("crash_everywhere crashes everywhere: leave crash_after out")
        given.setdefault("now", None if "history" in given else datetime.now(UTC))
        points = _Points()
        expected = await self._once(task, args, given, points)
        for number, point in enumerate(points.passed, 1):
            shown = await self._once(task, args, given, _Points(number))
            trouble = shown.differs_from(expected)
            if trouble:
                raise AssertionError(
                    f"{expected.task} crashed {point} ({number} of {len(points.passed)}): {trouble}\n\n"
                    f"without a crash:\n{expected}\n\nwith it:\n{shown}"
                )
        return expected

    async def _once(
        self, task: Any, args: Sequence[Any], given: Mapping[str, Any], dies: _Points
    ) -> Show[Any]:
        how = {word: given[word] for word in _HOW if word in given}
        kwargs = {word: value for word, value in given.items() if word not in _HOW}
        return await _run(_prepare(task, args, kwargs, **how, dies=dies))

    def blocking(self, task: Any, /, *args: Any, **given: Any) -> Show[Any]:
        """The same, for tests that do not await."""
        return _wait(lambda: self(task, *args, **given))


rehearse = Rehearse()
crash_everywhere = CrashEverywhere()

_HOW = ("signals", "steps", "calls", "fails", "now", "until", "restarts", "history")


class _After:
    """Dies once, after a step."""

    def __init__(self, where: int | str) -> None:
        if isinstance(where, int) and where < 1:
            raise ArgumentError(f"crash_after counts steps, from 1, not {where}")
        self._where = where
        self._kept = 0
        self.struck = False

    def __call__(self, entries: Sequence[Entry]) -> bool:
        for entry in entries:
            if self.struck or entry.kind != "step" or entry.open:
                continue
            self._kept += 1
            self.struck = self._where in (self._kept, entry.name)
            if self.struck:
                return True
        return False

    def __str__(self) -> str:
        where = self._where
        return f"step {where!r}" if isinstance(where, str) else f"{where} step(s)"


class _Points:
    """All points at which a process can die; it dies at one of them, or nowhere."""

    def __init__(self, fatal: int = 0) -> None:
        self.passed: list[str] = []
        self._fatal = fatal

    def __call__(self, entries: Sequence[Entry]) -> bool:
        last = entries[-1] if entries else None
        self.passed.append(f"after {last}" if last else "between two steps, or at its end")
        return len(self.passed) == self._fatal


def _prepare(
    task: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    dies: Callable[[Sequence[Entry]], bool] | None,
    signals: Signals | None = None,
    steps: Mapping[str, Any] | None = None,
    calls: Mapping[str, Any] | None = None,
    fails: Mapping[str, Errors | Sequence[Errors | None]] | None = None,
    now: datetime | None = None,
    until: timedelta | None = None,
    restarts: int = 0,
    history: Show[Any] | None = None,
) -> Rehearsal:
    from rota.engine.rehearsal import Rehearsal, Script
    from rota.engine.stage import Cast, Failing

    if now is not None and now.tzinfo is None:
        raise ArgumentError(f"{now.isoformat()} has no time zone; use one, such as timezone.utc")
    if history is not None and now is not None:
        raise ArgumentError("a rehearsal with a history goes on when that ended: leave now out")
    definition, given = _definition(task, args, kwargs, history)
    script = Script(now or datetime.now(UTC)) if history is None else history.script.copy()
    _say(script, signals or {})
    return Rehearsal(
        definition,
        given,
        script,
        Cast(
            steps or {}, calls or {}, {name: Failing(each) for name, each in (fails or {}).items()}
        ),
        dies=dies,
        until=None if until is None else script.now + until,
        restarts=restarts,
    )


async def _run(rehearsal: Rehearsal) -> Show[Any]:
    show = Show[Any](rehearsal, await rehearsal.run())
    unused = [name for name in rehearsal.cast.fails if name not in show.ran]
    if unused:
        raise ArgumentError(
            f"{show.task} never came to step {unused[0]!r}, which was to fail; it ran "
            f"{', '.join(map(repr, show.ran)) or 'no steps'}"
        )
    return show


def _definition(
    task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], history: Show[Any] | None
) -> tuple[Definition, str]:
    """What is run, and its arguments as they would be stored."""
    from rota.engine.call import Call
    from rota.model.codec import LARGEST
    from rota.model.task import Definition, Policy

    if isinstance(task, Call):
        if args or kwargs:
            raise ArgumentError(f"a call of {task.name!r} has its arguments already")
        return task.task, task.start.args
    known = getattr(task, "_definition", None)
    if not isinstance(known, Definition):
        fn = getattr(task, "fn", task)
        if isawaitable(fn) or not callable(fn):
            raise ArgumentError(
                f"rehearse takes a task or a function and its arguments, not {type(task).__name__}: "
                "rehearse(task, …), and not what task(…) answered"
            )
        known = Definition(fn, getattr(task, "name", fn.__name__), Policy())
    if history is not None and not args and not kwargs:
        return known, history.args
    return known, known.encode(tuple(args), dict(kwargs), LARGEST)


def _say(script: Script, signals: Signals) -> None:
    from rota.model import codec

    for name, said in signals.items():
        at, payload = script.now, said
        if isinstance(said, tuple) and len(said) == 2 and isinstance(said[0], timedelta | datetime):
            when, payload = said
            at = script.now + when if isinstance(when, timedelta) else when
        text = codec.encode(payload, f"the payload of signal {name!r}", codec.LARGEST)
        # As everywhere, the first of a name stands.
        script.signals.setdefault(name, (at, text))


def _wait(start: Callable[[], Awaitable[Show[Any]]]) -> Show[Any]:
    async def rehearsing() -> Show[Any]:
        return await start()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(rehearsing())
    # Called by a test that is async after all: its loop waits, another one runs.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, rehearsing()).result()
