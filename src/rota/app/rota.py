"""The application object: registers tasks, starts runs and runs workers by composing the layers below it.

The event loop, the driver and the engine are imported on first use, so that importing an app stays fast for
programs that only define tasks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)
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
from rota.model.options import check_options, show_options
from rota.model.registry import Registry
from rota.model.settings import Settings, database_url, direct_url
from rota.model.task import POLICY_DEFAULTS, TaskDefinition, TaskOptions, TaskPolicy
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
    """Result of `@app.task(…)`: turns a function into a task with the same parameters,
    without the context."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class Rota(CoordinationMethods, ScheduleMethods, WorkerEntry):
    """Application with its tasks, flows, schedules and database.

    `Rota()` reads the database from ROTA_DATABASE_URL, DATABASE_URL or PG*; `Rota(dsn)` uses a URL;
    `Rota("local")` starts the embedded PostgreSQL. Connections open on first use.

    If the URL leads to a pooler, `direct` (or ROTA_DIRECT_URL) is a URL that bypasses it. Notifications
    need such a connection.
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
        """Return the client of this event loop. The database is first used here, so importing an app needs
        none."""
        import asyncio

        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            from rota.store.migrate import migrate

            dsn, direct = await asyncio.to_thread(self._find_database)
            client = self._create_client(dsn, direct)
            client.process_counters = self.process_counters
            if self._local is not None:
                # The embedded database has no operator, so it is migrated here.
                await migrate(client.database)
            client = self._clients.setdefault(loop, client)
        return client

    def _create_client(self, dsn: str, direct: str | None) -> Client:
        from rota.app.client import Client

        return Client(dsn, self.settings, direct, self.event_bus.publish, self.tracing)

    def current_client(self) -> Client | None:
        """Return the client of this event loop if it is open, else None."""
        import asyncio

        return self._clients.get(asyncio.get_running_loop())

    def switch_database(self, dsn: str | None) -> str | None:
        """Use another database from now on, and return the previous DSN. Raise RotaError if connections are
        open."""
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
            # The direct URL belongs to the original database only.
            direct = (self._direct or direct_url()) if self._dsn == self._original_dsn else None
            return self._dsn, direct

    async def migrate(self) -> list[str]:
        """Apply missing migrations and return their names."""
        from rota.store.migrate import migrate

        applied = await migrate((await self.open()).database)
        return [f"{each.version:04d}_{each.name}" for each in applied]

    async def close(self) -> None:
        """Close the resources of this event loop."""
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
        """Lifespan for a web application: `FastAPI(lifespan=app.lifespan)`.

        It runs a worker beside the requests, and starts and stops it in order.
        `app.lifespan.options(worker=False)` only starts runs.
        """
        from rota.app.lifespan import Lifespan

        return Lifespan(self)

    def close_sync(self) -> None:
        """Close the resources that blocking calls opened."""
        self.loop_thread.run(self.close())
        self.loop_thread.close()

    async def __aenter__(self) -> Self:
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
    def task(self, *, name: str | None = None, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    @show_options(TaskOptions, POLICY_DEFAULTS)
    def task(
        self, fn: Any = None, *, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> Any:
        """Register a function as a task: `@app.task`, or `@app.task(queue="images", …)`."""
        check_options(Rota.task, options, TaskOptions)
        policy = TaskPolicy.from_options(options)

        def register(fn: Callable[..., Any]) -> Task[Any, Any]:
            definition = TaskDefinition(fn, name or fn.__name__, policy)
            self.registry.add(definition)
            return Task(self, definition)

        return register if fn is None else register(fn)

    def flow(self, name: str) -> Flow:
        """Return a new flow. Add its tasks with `@flow.task`."""
        definition = FlowDefinition(name)
        self.registry.add_flow(definition)
        return Flow(self, definition)

    # Runs

    @overload
    async def start_many(self, calls: Sequence[BoundTask[R]]) -> list[Run[R]]: ...
    @overload
    async def start_many(self, calls: Sequence[BoundFlow]) -> list[Run[dict[str, Any]]]: ...
    async def start_many(self, calls: Sequence[Any]) -> list[Any]:
        """Start all tasks, or all flows, or none: `app.start_many([resize.bind(path=p), …])`.

        All are started in one round trip. Tasks and flows cannot be mixed.
        """
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
        """Start a new run that repeats an existing one from a given point on.

        `from_` names a task of a flow: that task, its successors and all tasks that have not succeeded run
        again. `from_step` names a step of a task. Results before that point are kept. `input` replaces the
        arguments of the task. `by` names the operator in the audit log.
        """
        from rota.app.fork import fork

        id = run if isinstance(run, int) else run.id
        return await fork(self, id, from_, from_step, input, by)

    async def signal(self, run: Run[Any] | int, name: str, payload: Any = None) -> bool:
        """Send a signal to a run, or to the run of a job; as `run.signal(…)`."""
        target = Run[Any](self, run) if isinstance(run, int) else run
        return await target.signal(name, payload)

    def run(self, id: int) -> Run[Any]:
        """Return the run with this id, without querying the database."""
        return Run(self, id)

    @property
    def queues(self) -> Queues:
        """Pause and resume a queue: `await app.queues.pause("mail")`."""
        from rota.app.queues import Queues

        return Queues(self)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with each event of the workers in this program. Return a function to
        unsubscribe."""
        return self.event_bus.subscribe(subscriber)

    async def drain(self, worker: int, *, by: str | None = None) -> None:
        """Request a worker, in any process, to finish its jobs and stop.

        Raise WorkerNotFound if no worker has this number, or it has stopped or died. `by` names the
        operator in the audit log.
        """
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
