"""Which executor runs which task: coroutines on the loop, plain functions in threads, isolated ones in
processes."""

from __future__ import annotations

from rota.engine.address import reading
from rota.engine.coroutines import LoopExecutor
from rota.engine.execute import Executor, Finished, Ports, Stop
from rota.engine.processes import ProcessExecutor
from rota.engine.threads import ThreadExecutor
from rota.errors import RotaError
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed


class Executors:
    def __init__(
        self, finished: Finished, payload_limit: int, children: int, ports: Ports | None = None
    ) -> None:
        if reading:
            raise RotaError(
                f"{reading[0]} is read here for the tasks it defines, and starts a worker: put what it "
                'does when it is run under `if __name__ == "__main__":`'
            )
        self._coroutines = LoopExecutor(finished, payload_limit, ports)
        self._threads = ThreadExecutor(finished, payload_limit, ports)
        self._processes = ProcessExecutor(finished, payload_limit, ports, children)

    def _of(self, task: Definition) -> Executor:
        if task.policy.isolation is not None:
            return self._processes
        return self._coroutines if task.is_async else self._threads

    def start(self, job: Claimed, task: Definition, retry: Retry, timeout: float | None) -> None:
        self._of(task).start(job, task, retry, timeout)

    def stop(self, job: Claimed, task: Definition, why: Stop) -> None:
        self._of(task).stop(job, why)

    def drain(self) -> None:
        """The worker is about to stop: isolated code is told, the rest sees it by itself."""
        self._processes.drain()

    def close(self) -> None:
        self._threads.close()
        self._processes.close()

    async def closed(self) -> None:
        """Wait until no process is left. Call close first."""
        await self._processes.closed()
