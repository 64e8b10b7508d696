"""What makes a job's code durable: steps, sleeps, waits and values, kept as the code comes to them.

    asked for ──▶ kept before? ──▶ given again
                      │ no
                      ▼
                  done, kept ──▶ given            a step; kept before the code goes on
                  kept ──▶ the job leaves         a sleep, a wait: no place, no memory, no connection

A job that has left begins anew when it is woken, and is given everything it had come to. Short sleeps, and
those of one branch while others are busy, are waited for here instead.

What costs nothing to find out again (a value, that a wait is over) is kept together with what comes next:
before anything happens that could depend on it. So is a failure that the code has handled, which it shows
by going on; one that it has not fails the attempt, and the next one tries the step again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

from rota.engine import ends
from rota.engine.execute import Unstorable
from rota.engine.ledger import Ledger
from rota.engine.lines import Lines
from rota.engine.notes import Notes
from rota.engine.stepping import Failed, inside
from rota.errors import (
    ArgumentError,
    ClaimLost,
    HandBack,
    ReplayMismatch,
    ResultError,
    RetryLater,
    RotaError,
)
from rota.model import codec
from rota.model.outcome import Asleep, Judged, Restarted
from rota.model.readers import Reader, reader_for, reader_of
from rota.model.replay import Entry, Kept, Kind, Replay
from rota.model.retry import Retry

ONCE = Retry(attempts=1)


class Durable:
    def __init__(
        self,
        job: int,
        attempt: int,
        kept: Sequence[Kept] | None,
        ledger: Ledger,
        limit: int,
        encode: Callable[[tuple[Any, ...], dict[str, Any], int], str],
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._ledger = ledger
        self._limit = limit
        self._encode = encode
        self.lines = Lines(ledger.is_own)
        self._replay = Replay(job, kept or ())
        self._read_at = time.monotonic()
        self._stirred = self._read_at  # when the code last came to something
        self._notes = Notes(ledger.write)
        self._running = 0
        self._waits: list[Entry] = []
        self._now: datetime | None = None
        self.fate: Asleep | Judged | Restarted | None = None
        """What the attempt comes to, whatever its code does from now on."""

    # Steps

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        retry: Retry | None = None,
        timeout: float | None = None,
    ) -> Any:
        if self.fate is not None:
            await self._stay()
        entry, kept = self._ask("step", name)
        line = self.lines.here()
        read = reader_of(fn)
        tries = 0
        if kept is not None:
            if not kept.open:
                if kept.error is not None:
                    if kept.error == ends.ABANDONED:
                        await self._until_abandoned()
                    raise ends.failure(entry, kept.error)
                return read(kept.result)
            if kept.error is None or codec.read_error(kept.error.encode()).attempt == self._attempt:
                tries = kept.tries
                rest = self._left(kept)
                if rest is not None and rest > 0:
                    await self._rest(entry, rest, kept=True)
            # Else it was tried by an earlier attempt, which failed: this one has all its tries again.
        while True:
            with self.busy():
                await self.flush()
                began = time.perf_counter()
                try:
                    return await self._do(entry, read, fn, args, kwargs, timeout, tries + 1)
                except Failed as failed:
                    error = failed.error
                    tries += 1
                    ends.close(entry, tries, began)
                    entry.error = codec.error_document(error, self._attempt, "")
                    delay = (retry or ONCE).after(tries, error)
                    if delay is None:
                        self._notes.add_failed(entry, line)
                        raise ends.failure(entry, entry.error) from error
                except asyncio.CancelledError:
                    # By the code itself, if it goes on: what it did not wait for must not be new next time.
                    self._notes.add_failed(ends.abandoned(entry, tries + 1, began), line)
                    raise
            await self._rest(ends.opened(entry, delay), delay)

    async def _do(
        self,
        entry: Entry,
        read: Reader,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        timeout: float | None,
        tries: int,
    ) -> Any:
        """Run a step's code, and keep what it came to: in the transaction it made, if it made one."""
        began = time.perf_counter()
        async with self._ledger.step(entry) as step:
            try:
                value = await step.run(partial(fn, *args, **kwargs), timeout)
            except _PASSING:
                raise
            except Exception as error:
                raise Failed(error) from error
            try:
                entry.result = codec.encode(value, entry, self._limit)
                # As it will be read when it is given again: if it cannot be, it is not kept.
                value = read(entry.result)
            except (ArgumentError, ResultError) as error:
                raise Unstorable(str(error)) from None
            ends.close(entry, tries, began)
            entry.error = None
            if step.has_transaction:
                await step.commit(entry)
            else:
                await self._notes.keep([entry])
        return value

    async def _until_abandoned(self) -> NoReturn:
        """The code did not wait for this step (a timeout of its own, a race), and will not again."""
        while True:
            await self._ledger.pause(self._ledger.linger, idle=not self._running)

    # Waiting

    async def sleep(self, seconds: float | None, until: datetime | None) -> None:
        if self.fate is not None:
            await self._stay()
        entry, kept = self._ask("sleep", "sleep")
        if kept is not None:
            rest = self._left(kept)
            if rest is not None and rest > 0:
                await self._rest(entry, rest, kept=True)
            return
        if until is not None:
            entry.until = until.isoformat()
            rest = (until - self._ledger.now()).total_seconds()
        else:
            assert seconds is not None
            entry.seconds = rest = seconds
        if rest > 0:
            await self._rest(entry, rest)
        else:
            self._notes.add(entry)

    async def wait(self, name: str, kind: Any, timeout: float | None, default: Any) -> Any:
        if self.fate is not None:
            await self._stay()
        entry, kept = self._ask("wait", name)
        read = reader_for(kind, f"what was said as signal {name!r}")
        if kept is not None and not kept.open:
            return ends.heard(entry, kept.result, read, default)
        payload: str | None
        if kept is not None:
            payload = kept.payload if kept.said else None
            rest = self._left(kept)
        else:
            with self.busy():
                payload = await self._ledger.look(name)
            rest = timeout
        if payload is None and (rest is None or rest > 0):
            payload = await self._rest(ends.opened(entry, timeout), rest, kept=kept is not None)
        entry.open = False
        entry.seconds = None
        entry.result = payload
        if payload is None:
            entry.error = ends.TIMED_OUT
        self._notes.add(entry)
        return ends.heard(entry, payload, read, default)

    async def _rest(self, entry: Entry, rest: float | None, *, kept: bool = False) -> str | None:
        """Come back when so many seconds have passed, or with what was said to somebody who waits for that.
        Mostly it does not come back: the job leaves, and comes here anew when it is woken."""
        self._ledger.check_free()
        linger = self._ledger.linger
        entry.seconds = rest
        if self._is_alone and (rest is None or rest > linger):
            # A branch that was begun just now shows itself first.
            await asyncio.sleep(0)
            if self._is_alone:
                await self._leave([] if kept else [entry], [entry])
        if not kept:
            with self.busy():
                await self._notes.keep([entry])
        until = None if rest is None else time.monotonic() + rest
        self._waits.append(entry)
        try:
            while True:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return None
                await self._ledger.pause(
                    linger if left is None else min(left, linger), idle=not self._running
                )
                if entry.kind == "wait":
                    payload = await self._ledger.look(entry.name)
                    if payload is not None:
                        return payload
                quiet = not self._running and time.monotonic() - self._stirred >= linger
                if quiet and (left is None or left > linger):
                    await self._leave([], self._waits)
        finally:
            self._waits.remove(entry)
            self._stirred = time.monotonic()

    async def _leave(self, entries: Sequence[Entry], waits: Sequence[Entry]) -> NoReturn:
        if self.fate is None:
            self.fate = Asleep((*self._notes.take(), *entries), tuple(waits))
        await self._ledger.leave()

    async def _stay(self) -> NoReturn:
        """Its code has swallowed what ended it: it comes no further, and does not keep others from it."""
        await self._ledger.pause(1, idle=True)
        raise asyncio.CancelledError

    @property
    def _is_alone(self) -> bool:
        return self._ledger.is_own() and not self._running and not self._waits

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While something of the job does something it does not leave, whatever else waits."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._stirred = time.monotonic()

    async def restart(self, args: Mapping[str, Any]) -> NoReturn:
        self._check()
        self._ledger.check_free()
        text = self._encode((), dict(args), self._limit)
        self.confirm_failures()
        # What it has heard must be known, to be forgotten.
        await self.flush()
        self.fate = Restarted(text)
        await self._ledger.leave()

    # Values

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        entry, kept = self._ask("value", name)
        if kept is not None:
            return codec.decode((kept.result or "null").encode())
        value = make()
        entry.result = codec.encode(value, name, self._limit)
        self._notes.add(entry)
        return value

    def now(self) -> datetime:
        """The time, which never goes back, whatever worker this is."""

        def later() -> str:
            now = self._ledger.now().astimezone(UTC)
            return (now if self._now is None else max(now, self._now)).isoformat()

        self._now = datetime.fromisoformat(self.value("now", later))
        return self._now

    def version(self, change: str) -> bool:
        self._check()
        self.confirm_failures()
        entry, goes = self._replay.version(change, own=self._ledger.is_own())
        if entry is not None:
            self._notes.add(entry)
        return goes

    @property
    def is_behind(self) -> bool:
        """Whether the code has not come as far as it had before: what it says was said."""
        return self._replay.is_behind

    # Keeping

    async def flush(self) -> None:
        """Keep what has been put off: something is about to happen that may depend on it."""
        await self._notes.flush()

    def confirm_failures(self) -> None:
        """Confirm failed steps before a durable operation that has no journal entry of its own.

        An operation inside a step confirms nothing: the step has done so when it began.
        """
        if self._notes.has_failed and inside.get() is None:
            self._notes.confirm_failures(self.lines.known())

    async def end(self) -> None:
        """The code has returned."""
        self._check()
        try:
            self._replay.end()
        except ReplayMismatch as error:
            self._set_aside(error)
            raise
        if self._notes.has_wait:
            await self.flush()

    # What all of them have in common

    def _ask(self, kind: Kind, name: str) -> tuple[Entry, Kept | None]:
        self._check()
        line = self.lines.here()
        self._stirred = time.monotonic()
        if self._notes.has_failed:
            self._notes.confirm_failures(line)
        try:
            return self._replay.ask(kind, name, line)
        except ReplayMismatch as error:
            self._set_aside(error)
            raise

    def _check(self) -> None:
        if self.fate is not None:
            raise asyncio.CancelledError
        step = inside.get()
        if step is not None:
            raise RotaError(
                f"{step.label} cannot have steps, sleeps, waits or values of its own: it is done, or done "
                "again, as a whole. Return from it first"
            )

    def _set_aside(self, error: ReplayMismatch) -> None:
        self.fate = Judged("quarantined", codec.error_document(error, self._attempt, ""))

    def _left(self, kept: Kept) -> float | None:
        """Seconds until something that waits is over."""
        return None if kept.rest is None else kept.rest - (time.monotonic() - self._read_at)


_PASSING = (ClaimLost, RetryLater, HandBack, ReplayMismatch)
"""What is meant for the whole attempt, also out of a step."""
