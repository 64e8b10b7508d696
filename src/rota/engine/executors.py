"""Which executor runs which task: coroutines on the loop, plain functions in threads, isolated ones in
processes."""

from __future__ import annotations

from collections import defaultdict
from contextvars import copy_context
from typing import TYPE_CHECKING

from rota.engine.address import reading
from rota.engine.coroutines import LoopExecutor
from rota.engine.execute import UNSTARTED, Executor, Finished, Ports, Stop
from rota.engine.otel import Spans, lost
from rota.engine.processes import ProcessExecutor
from rota.engine.threads import ThreadExecutor
from rota.engine.tracing import Tracing
from rota.errors import RotaError
from rota.model import at_work
from rota.model.outcome import Outcome
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Executors:
    def __init__(
        self,
        finished: Finished,
        payload_limit: int,
        children: int,
        ports: Ports | None = None,
        worker: int | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        if reading:
            raise RotaError(
                f"{reading[0]} is read here for the tasks it defines, and starts a worker: put what it "
                'does when it is run under `if __name__ == "__main__":`'
            )
        self._coroutines = LoopExecutor(finished, payload_limit, ports)
        self._threads = ThreadExecutor(finished, payload_limit, ports)
        self._processes = ProcessExecutor(finished, payload_limit, ports, children, worker)
        self.started: defaultdict[str, int] = defaultdict(int)
        """How often the code of each task began."""
        self._known: dict[Definition, Executor] = {}
        self._worker = worker
        self._tracing = tracing
        self._spans: Spans | None = None
        self._open: dict[Claimed, Span] = {}
        # Each job sees the variables of the worker's start, and none that another job has set.
        self._context = copy_context()
        self._context.run(at_work.worker.set, worker)

    def _of(self, task: Definition) -> Executor:
        if task.policy.isolation is not None:
            return self._processes
        return self._coroutines if task.is_async else self._threads

    def start(self, job: Claimed, task: Definition, retry: Retry, timeout: float | None) -> None:
        context = self._context.copy()
        if self._spans is not None:
            context.run(self._trace, self._spans, job)
        self.started[job.task] += 1
        executor = self._known.get(task)
        if executor is None:
            executor = self._known[task] = self._of(task)
        executor.start(job, task, retry, timeout, context)

    def look(self) -> None:
        """Find out whether attempts are traced from now on."""
        if self._tracing is not None:
            self._spans = self._tracing.look()

    def _trace(self, spans: Spans, job: Claimed) -> None:
        try:
            self._open[job] = spans.attempt(job, self._worker)
        except Exception as error:
            lost(error)

    def untrace(self, job: Claimed, outcome: Outcome) -> None:
        """An attempt that is traced has come to something."""
        span = self._open.pop(job, None)
        if span is None or self._spans is None:
            return
        try:
            self._spans.end(span, outcome)
        except Exception as error:
            lost(error)

    def stop(self, job: Claimed, task: Definition, why: Stop) -> None:
        self._of(task).stop(job, why)

    def drain(self) -> None:
        """The worker is about to stop: isolated code is told, the rest sees it by itself."""
        self._processes.drain()

    def close(self) -> None:
        for job in list(self._open):
            self.untrace(job, UNSTARTED)  # it would not stop, and was given up
        self._threads.close()
        self._processes.close()

    async def closed(self) -> None:
        """Wait until no process is left. Call close first."""
        await self._processes.closed()
