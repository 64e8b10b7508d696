"""Isolated tasks, in processes: whatever the code does to its process, the worker lives.

Processes are started when there is something for them to do, run one job at a time, serve many, and end
when nobody has needed them for a while. One that dies fails the attempt it ran. At its deadline a process
is killed at once; told to stop, its code gets a moment to heed. A job that finds all processes busy goes
back after a second: somebody else may have one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import Context as Surroundings
from dataclasses import dataclass
from itertools import count

import msgspec

from rota.engine.address import address_of, name_of
from rota.engine.childport import ANSWERS
from rota.engine.children import PATIENCE, Child
from rota.engine.execute import (
    LOST,
    MARGIN,
    SKIPPED,
    UNSTARTED,
    Finished,
    Ports,
    Stop,
    is_to_be_skipped,
    judge,
    stopped,
    too_late,
)
from rota.engine.frames import Address, Ask, Began, Begin, FromProcess, Over, Reply, Tell
from rota.errors import ProcessLost
from rota.model.context import Port
from rota.model.outcome import Done, Outcome
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed

log = logging.getLogger("rota")

IDLE_FOR = 60.0
WAIT_FOR = 1.0
"""Seconds a job waits for a process before it goes back."""

BEGIN_WITHIN = 120.0
"""Seconds a process has to start and import what it needs."""


@dataclass(eq=False, slots=True)
class Attempt:
    """One job here, from its start to its outcome."""

    number: int
    job: Claimed
    task: Definition
    address: Address
    retry: Retry
    timeout: float | None
    since: float
    child: Child | None = None
    has_begun: bool = False
    why: Stop | None = None
    error: BaseException | None = None
    """Why its process was killed, if it was for its own sake."""
    timer: asyncio.TimerHandle | None = None
    """Until it must have been given a process, have begun, have ended: one after the other."""
    last: asyncio.TimerHandle | None = None
    """Until one that was told to stop is killed, and until one that was killed is given up."""
    port: Port | None = None

    def forget(self) -> None:
        for timer in (self.timer, self.last):
            if timer is not None:
                timer.cancel()
        self.timer = self.last = None


class ProcessExecutor:
    def __init__(
        self,
        finished: Finished,
        payload_limit: int,
        ports: Ports | None = None,
        children: int = 0,
        worker: int | None = None,
    ) -> None:
        self._finished = finished
        self._limit = payload_limit
        self._ports = ports
        self._most = children or _cores()
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        self._attempts: dict[Claimed, Attempt] = {}
        self._waiting: deque[Attempt] = deque()
        self._children: dict[Child, Attempt | None] = {}
        self._resting: dict[Child, asyncio.TimerHandle] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._addresses: dict[Definition, Address] = {}
        self._is_draining = self._is_closed = False

    def check(self, task: Definition) -> Address:
        """Where the task is found. Raises DefinitionError."""
        if task not in self._addresses:
            self._addresses[task] = address_of(task)
        return self._addresses[task]

    # In, through

    def start(
        self,
        job: Claimed,
        task: Definition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        # What its code sees of the surroundings goes with the job: where it is in a trace.
        attempt = Attempt(
            next(self._numbers), job, task, self.check(task), retry, timeout, time.perf_counter()
        )
        self._attempts[job] = attempt
        try:
            if task.skip_if is not None and is_to_be_skipped(job, task.skip_if):
                self._loop.call_soon(self._finish, attempt, SKIPPED)
                return
        except Exception as error:
            self._loop.call_soon(self._finish, attempt, judge(error, job, retry))
            return
        self._waiting.append(attempt)
        attempt.timer = self._loop.call_later(WAIT_FOR, self._hand_back, attempt)
        self._fill()

    def _fill(self) -> None:
        """Give those that wait to processes, as far as there are any."""
        while self._waiting and not self._is_closed:
            child = self._free()
            if child is None:
                return
            attempt = self._waiting.popleft()
            self._children[child] = attempt
            attempt.child = child
            attempt.forget()
            attempt.timer = self._loop.call_later(BEGIN_WITHIN, self._has_not_begun, attempt)
            child.send(
                Begin(
                    attempt.number,
                    attempt.job,
                    attempt.task.name,
                    attempt.address,
                    attempt.retry.document(),
                    [name_of(kind) for kind in attempt.retry.never],
                    self._limit,
                    self._is_draining,
                    self._worker,
                )
            )

    def _free(self) -> Child | None:
        if self._resting:
            child, timer = self._resting.popitem()  # the last to rest, so that the others get old
            timer.cancel()
            return child
        if len(self._children) >= self._most:
            return None
        try:
            child = Child(self._hear, self._bury)
        except OSError as error:
            log.warning("no process for isolated tasks could be started: %s", error)
            return None
        self._children[child] = None
        return child

    def _hear(self, child: Child, message: FromProcess) -> None:
        attempt = self._children.get(child)
        if attempt is None or attempt.number != message.number or self._is_closed:
            return
        match message:
            case Began():
                attempt.has_begun = True
                if attempt.timer is not None:
                    attempt.timer.cancel()
                attempt.since = time.perf_counter()
                if attempt.timeout is not None:
                    attempt.timer = self._loop.call_later(
                        attempt.timeout, self._kill, attempt, too_late(attempt.timeout)
                    )
            case Over():
                child.served += 1
                self._children[child] = None
                self._rest(child)
                self._finish(attempt, message.outcome, message.took)
            case Ask():
                answering = self._loop.create_task(self._answer(child, attempt, message))
                self._answering.add(answering)
                answering.add_done_callback(self._answering.discard)

    async def _answer(self, child: Child, attempt: Attempt, ask: Ask) -> None:
        try:
            if ask.method not in ANSWERS or self._ports is None:
                raise RuntimeError(f"a process cannot ask for {ask.method!r} here")
            if attempt.port is None:
                attempt.port = self._ports(attempt.job)
            answer = getattr(attempt.port, ask.method)(*msgspec.json.decode(ask.arguments))
            if isinstance(answer, Awaitable):
                answer = await answer
            reply = Reply(ask.question, msgspec.json.encode(answer))
        except Exception as error:
            reply = Reply(ask.question, b"", str(error), type(error).__name__)
        if self._children.get(child) is attempt:
            child.send(reply)

    # Out

    def _finish(self, attempt: Attempt, outcome: Outcome, took: float | None = None) -> None:
        attempt.forget()
        if self._attempts.pop(attempt.job, None) is None:
            return
        if attempt.why is Stop.LOST:
            outcome = LOST
        elif attempt.why is not None and not isinstance(outcome, Done):
            outcome = stopped(attempt.why)
        if took is None:
            took = time.perf_counter() - attempt.since
        self._finished(attempt.job, outcome, took)
        self._fill()

    def _rest(self, child: Child) -> None:
        if child.is_fit and not self._is_closed:
            self._resting[child] = self._loop.call_later(IDLE_FOR, self._let_go, child)

    def _let_go(self, child: Child) -> None:
        self._resting.pop(child).cancel()
        child.end()

    def _bury(self, child: Child) -> None:
        """A process is no more."""
        attempt = self._children.pop(child)
        if (timer := self._resting.pop(child, None)) is not None:
            timer.cancel()
        if attempt is not None and attempt.job in self._attempts:
            if attempt.why is None and attempt.error is None and self._is_blameless(attempt):
                # It died while it had nothing to do; what was sent to it meanwhile goes to another.
                attempt.child = None
                attempt.forget()
                attempt.timer = self._loop.call_later(WAIT_FOR, self._hand_back, attempt)
                self._waiting.appendleft(attempt)
            else:
                error = attempt.error or _lost(child, attempt)
                self._finish(attempt, judge(error, attempt.job, attempt.retry))
        self._fill()

    @staticmethod
    def _is_blameless(attempt: Attempt) -> bool:
        """A process that has served before died without having begun this one."""
        child = attempt.child
        return child is not None and child.served > 0 and not attempt.has_begun

    # What does not end by itself

    def _hand_back(self, attempt: Attempt) -> None:
        self._waiting.remove(attempt)
        self._finish(attempt, UNSTARTED, 0.0)

    def _has_not_begun(self, attempt: Attempt) -> None:
        late = f"its process was not ready to run it within {BEGIN_WITHIN:g} s"
        self._kill(
            attempt, ProcessLost(f"{late}; is there something that hangs in what it imports?")
        )

    def _kill(self, attempt: Attempt, error: BaseException | None) -> None:
        assert attempt.child is not None
        attempt.error = error
        attempt.forget()
        attempt.last = self._loop.call_later(MARGIN, self._give_up, attempt)
        attempt.child.kill()

    def _give_up(self, attempt: Attempt) -> None:
        """Not even killing helped: the system does not let it go."""
        assert attempt.child is not None
        pid = attempt.child.pid
        log.warning("process %s does not end; job %s is given up", pid, attempt.job.job)
        error = attempt.error or ProcessLost(f"its process {pid} was killed and does not end")
        self._finish(attempt, judge(error, attempt.job, attempt.retry))

    def stop(self, job: Claimed, why: Stop) -> None:
        attempt = self._attempts.get(job)
        if attempt is None:
            return
        attempt.why = why
        if attempt.child is None:
            with suppress(ValueError):
                self._waiting.remove(attempt)
            attempt.forget()
            self._loop.call_soon(self._finish, attempt, UNSTARTED, 0.0)
            return
        attempt.child.send(Tell(attempt.number, True, why is Stop.DRAINED))
        if attempt.last is None:
            attempt.last = self._loop.call_later(PATIENCE, self._kill, attempt, None)

    def drain(self) -> None:
        """The worker is about to stop: code that looks can see it."""
        self._is_draining = True
        for child, attempt in self._children.items():
            if attempt is not None:
                child.send(Tell(attempt.number, False, True))

    def close(self) -> None:
        """End all processes; nothing is finished any more. `closed()` waits for it."""
        self._is_closed = True
        for attempt in self._attempts.values():
            attempt.forget()
        self._attempts.clear()
        self._waiting.clear()
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for child, busy in self._children.items():
            if busy is None:
                child.end()
            else:
                child.kill()

    async def closed(self) -> None:
        for answering in self._answering:
            answering.cancel()
        try:
            if self._children:
                await asyncio.wait([child.over for child in self._children], timeout=MARGIN)
        finally:
            # Also when the worker waits no longer: no process outlives it, or is left unreaped.
            for child in list(self._children):
                child.kill_and_reap()


def _cores() -> int:
    """Those this process may use, where the system says."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _lost(child: Child, attempt: Attempt) -> ProcessLost:
    when = "" if attempt.has_begun else " before it began"
    hint = ""
    if child.code == -signal.SIGKILL:
        hint = ": somebody killed it, or the system did for want of memory"
    return ProcessLost(f"the process it ran in {_how(child.code)}{when}{hint}")


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
