"""Rota: register tasks, start runs, work. Composes the layers and adds nothing of its own.

What only running needs (the loop, the driver, the engine) is imported where it is first needed, so that
importing an app stays cheap for whoever only defines tasks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload
from weakref import WeakKeyDictionary

from rota.app.coordination import CoordinationMethods
from rota.app.flow import Flow, FlowTask
from rota.app.readiness import Readiness
from rota.app.run import Run
from rota.app.schedule_decorator import ScheduleMethods
from rota.app.sync import LoopThread
from rota.app.task import Task
from rota.app.worker_entry import WorkerEntry
from rota.engine.execution.call import BoundFlow, BoundTask
from rota.engine.telemetry.counters import ProcessCounters
from rota.engine.telemetry.event_bus import EventBus, Subscriber
from rota.engine.telemetry.tracing import Tracing
from rota.errors import ArgumentError, RotaError, WorkerNotFound
from rota.model.context import Context
from rota.model.flow import FlowDefinition
from rota.model.registry import Registry
from rota.model.retry import Retry
from rota.model.settings import Duration, Settings, database_url, direct_url
from rota.model.task import Isolation, OnWorkerLost, TaskDefinition, TaskPolicy
from rota.store.query import check_schema

if TYPE_CHECKING:
    import asyncio

    from rota.app.client import Client
    from rota.app.lifespan import Lifespan
    from rota.app.queues import Queues
    from rota.localpg import LocalPostgres
    from rota.store.schedules import ScheduleDefinition as ScheduleDefinition

P = ParamSpec("P")
R = TypeVar("R")

LOCAL = "local"

log = logging.getLogger("rota")


class TaskDecorator(Protocol):
    """`@app.task(…)`: a function becomes a task with the same parameters, less the context."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class Rota(CoordinationMethods, ScheduleMethods, WorkerEntry):
    """An application's durable work: its tasks, and the database they live in.

    `Rota()` takes the database from ROTA_DATABASE_URL, DATABASE_URL or PG*; `Rota(dsn)` from a URL;
    `Rota("local")` starts the embedded PostgreSQL, on purpose. Connections open on first use.

    Where that is a pooler, `direct` (or ROTA_DIRECT_URL) is a way past it: to hear of work at once.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        direct: str | None = None,
        settings: Settings | None = None,
        **overrides: Any,
    ) -> None:
        self.settings = settings or Settings.read(**overrides)
        check_schema(self.settings.schema)
        self.registry = Registry()
        self.declared_schedules: dict[str, ScheduleDefinition] = {}
        self.event_bus = EventBus()
        self.process_counters = ProcessCounters()
        self.tracing = Tracing(self.settings.tracing)
        self.readiness = Readiness(self.open)
        self.loop_thread = LoopThread()
        self._dsn = self._original_dsn = dsn
        self._direct = direct
        self._dsn_lock = threading.Lock()
        self._local: LocalPostgres | None = None
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

    # The database

    async def open(self) -> Client:
        """What is open in this event loop. The database is asked for on first use, so that importing
        an app needs none."""
        import asyncio

        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            from rota.app.client import Client
            from rota.store.migrate import migrate

            dsn, direct = await asyncio.to_thread(self._find_database)
            client = Client(dsn, self.settings, direct, self.event_bus.publish, self.tracing)
            client.process_counters = self.process_counters
            if self._local is not None:
                # Nobody else looks after the embedded database.
                await migrate(client.database)
            client = self._clients.setdefault(loop, client)
        return client

    def current_client(self) -> Client | None:
        """What is open in this event loop already, if anything is; nothing is asked for."""
        import asyncio

        return self._clients.get(asyncio.get_running_loop())

    def switch_database(self, dsn: str | None) -> str | None:
        """Work in another database from now on. Answers where it was; close what is open first."""
        if self._clients:
            raise RotaError("this app has connections open; close it before it is put elsewhere")
        dsn, self._dsn = self._dsn, dsn
        return dsn

    def _find_database(self) -> tuple[str, str | None]:
        with self._dsn_lock:
            if self._dsn is None:
                self._dsn = self._original_dsn = database_url()
            if self._dsn == LOCAL:
                from rota.localpg import LocalPostgres

                self._local = LocalPostgres()
                self._dsn = self._local.start()
            # The way past the pooler leads to the database the app was made for, and to no other.
            direct = (self._direct or direct_url()) if self._dsn == self._original_dsn else None
            return self._dsn, direct

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; answers the names of the migrations that had to be applied."""
        from rota.store.migrate import migrate

        applied = await migrate((await self.open()).database)
        return [f"{each.version:04d}_{each.name}" for each in applied]

    async def close(self) -> None:
        """Close what is open in this event loop."""
        import asyncio

        await self.readiness.close()
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        if self._local is not None and not self._clients:
            local, self._local, self._dsn = self._local, None, LOCAL
            await asyncio.to_thread(local.stop)

    @property
    def lifespan(self) -> Lifespan:
        """For a web application: `FastAPI(lifespan=app.lifespan)`. Starts in order, works beside the
        requests, leaves in order; `app.lifespan.options(worker=False)` only starts runs."""
        from rota.app.lifespan import Lifespan

        return Lifespan(self)

    def close_sync(self) -> None:
        """Close what blocking calls have opened."""
        self.loop_thread.run(self.close())
        self.loop_thread.close()

    async def __aenter__(self) -> Rota:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Tasks

    @overload
    def task(self, fn: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        on_worker_lost: OnWorkerLost = "retry",
        max_crashes: int = 3,
        visibility_timeout: Duration | None = None,
        isolation: Isolation = None,
    ) -> TaskDecorator: ...
    def task(
        self,
        fn: Any = None,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        on_worker_lost: OnWorkerLost = "retry",
        max_crashes: int = 3,
        visibility_timeout: Duration | None = None,
        isolation: Isolation = None,
    ) -> Any:
        """Register a function as a task: `@app.task`, or `@app.task(queue="images", …)`."""
        policy = TaskPolicy.from_options(
            queue=queue,
            priority=priority,
            retry=retry,
            timeout=timeout,
            on_worker_lost=on_worker_lost,
            max_crashes=max_crashes,
            visibility_timeout=visibility_timeout,
            isolation=isolation,
        )

        def register(fn: Callable[..., Any]) -> Task[Any, Any]:
            definition = TaskDefinition(fn, name or fn.__name__, policy)
            self.registry.add(definition)
            return Task(self, definition)

        return register if fn is None else register(fn)

    def flow(self, name: str) -> Flow:
        """A graph of tasks, to be filled with `@flow.task`."""
        definition = FlowDefinition(name)
        self.registry.add_flow(definition)
        return Flow(self, definition)

    # Runs

    @overload
    async def start_many(self, calls: Sequence[BoundTask[R]]) -> list[Run[R]]: ...
    @overload
    async def start_many(self, calls: Sequence[BoundFlow]) -> list[Run[dict[str, Any]]]: ...
    async def start_many(self, calls: Sequence[Any]) -> list[Any]:
        """Start all of them or none, in one round trip: `app.start_many([resize.bind(path=p), …])`. Tasks
        or flows, not both."""
        calls = list(calls)
        if not calls:
            return []
        client = await self.open()
        if all(isinstance(call, BoundTask) for call in calls):
            started = await client.start_many([call.start for call in calls])
            return [
                Run(self, each.run, call.task, created=each.created)
                for each, call in zip(started, calls, strict=True)
            ]
        if all(isinstance(call, BoundFlow) for call in calls):
            started = await client.start_runs(calls)
            return [Run(self, each.run, created=each.created) for each in started]
        kinds = sorted({type(call).__name__ for call in calls})
        raise ArgumentError(
            "start_many takes calls of tasks, or calls of flows, made with bind(…), not "
            f"{' and '.join(kinds)}"
        )

    @overload
    async def fork(
        self,
        run: Run[R],
        *,
        from_: FlowTask | str | None = None,
        from_step: str | None = None,
        input: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Run[R]: ...
    @overload
    async def fork(
        self,
        run: int,
        *,
        from_: FlowTask | str | None = None,
        from_step: str | None = None,
        input: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Run[Any]: ...
    async def fork(
        self,
        run: Run[Any] | int,
        *,
        from_: FlowTask | str | None = None,
        from_step: str | None = None,
        input: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Run[Any]:
        """Run something once more from a point of it on, as a run of its own: a flow from one of its tasks
        (that task and all that waits for it run anew, and so does what has not succeeded), a task from one
        of its steps. What came before keeps its results. `input`: as if the task had been started with
        that. `by`: who does so by hand."""
        from rota.app.fork import fork

        id = run if isinstance(run, int) else run.id
        return await fork(self, id, from_, from_step, input, by)

    async def signal(self, run: Run[Any] | int, name: str, payload: Any = None) -> bool:
        """Send a run, or the run of a job, a signal; as `run.signal(…)`."""
        target = Run[Any](self, run) if isinstance(run, int) else run
        return await target.signal(name, payload)

    def run(self, id: int) -> Run[Any]:
        """The run with this id; nothing is asked until you ask."""
        return Run(self, id)

    @property
    def queues(self) -> Queues:
        """Pause and resume a queue: `await app.queues.pause("mail")`."""
        from rota.app.queues import Queues

        return Queues(self)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Be told what workers in this program do, as events; call the answer to stop."""
        return self.event_bus.subscribe(subscriber)

    async def drain(self, worker: int, *, by: str | None = None) -> None:
        """Ask a worker, wherever it runs, to finish what it has and leave. Raises WorkerNotFound if there
        is none with this number, or it has left or died. `by`: who does so by hand, for the audit log."""
        from rota.engine.audited import run_audited_query
        from rota.store import workers
        from rota.store.audit import AuditEntry

        state = await run_audited_query(
            (await self.open()).database,
            workers.request_drain(worker),
            None if by is None else AuditEntry(by, "drain worker", str(worker)),
            was_done=lambda state: state not in (None, "dead", "stopped"),
            is_idempotent=True,
        )
        if state is None:
            raise WorkerNotFound(
                f"there is no worker {worker}; `rota workers --all` lists those that are known"
            )
        if state == "dead":
            raise WorkerNotFound(f"worker {worker} is dead: there is nothing to drain")
        if state == "stopped":
            raise WorkerNotFound(f"worker {worker} has left already")
