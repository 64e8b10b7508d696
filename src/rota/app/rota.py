"""The application object: registers tasks, starts runs and runs workers by composing the layers below it.

The event loop, the driver and the engine are imported on first use, so that importing an app stays fast for
programs that only define tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from rota.app.app_database import AppDatabase
from rota.app.coordination import (
    LOCK_DEFAULTS,
    WEEK,
    F,
    LockOptions,
    TryLockOptions,
    check_leader_name,
    check_lease,
    check_name,
    check_permits,
    lock_options,
    service_decorator,
)
from rota.app.flow import Flow, FlowTask
from rota.app.readiness import Readiness
from rota.app.run import Run
from rota.app.schedule_decorator import S, schedule_decorator
from rota.app.start import started_run
from rota.app.sync import LoopThread
from rota.app.task import Task
from rota.engine.execution.call import BoundFlow, BoundTask
from rota.engine.telemetry.counters import ProcessCounters
from rota.engine.telemetry.event_bus import EventBus, Subscriber
from rota.engine.telemetry.tracing import Tracing
from rota.errors import ArgumentError, WorkerNotFound
from rota.model.context import Context
from rota.model.flow import FlowDefinition
from rota.model.options import check_options, show_options
from rota.model.registry import Registry
from rota.model.schedule_options import SCHEDULE_DEFAULTS, ScheduleOptions
from rota.model.settings import Duration, Settings
from rota.model.task import (
    POLICY_DEFAULTS,
    ActionOptions,
    TaskDefinition,
    TaskOptions,
    TaskPolicy,
)
from rota.model.task import (
    check_name as check_task_name,
)
from rota.store.query import check_schema

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.app.lifespan import Lifespan
    from rota.app.locks import Lock, Permit, RateLimit
    from rota.app.once import SyncRota
    from rota.app.queues import Queues
    from rota.app.schedules import Schedules
    from rota.coord.coordinator import Coordinator
    from rota.coord.insert_once import Inserted
    from rota.coord.leader import Callback, Leader
    from rota.coord.services import ServiceGroup
    from rota.engine.worker.worker import Worker
    from rota.store.schedules import ScheduleDefinition as ScheduleDefinition

P = ParamSpec("P")
R = TypeVar("R")


class ForkOptions(TypedDict, total=False):
    """Options of `Rota.fork`."""

    from_: FlowTask | str | None
    from_step: str | None
    input: Mapping[str, Any] | None
    by: str | None


class WorkerOptions(TypedDict, total=False):
    """Options of a worker."""

    queues: Sequence[str] | None
    concurrency: int | None
    metadata: Mapping[str, Any] | None
    services: bool


WORKER_DEFAULTS: WorkerOptions = {"services": True}


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


class Rota:
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
        self.database = AppDatabase(dsn, direct, self._create_client)

    # The database

    def open(self) -> Coroutine[Any, Any, Client]:
        """Return the client of this event loop: `await app.open()`. The database is first used here, so
        importing an app needs none."""
        return self.database.open()

    def _create_client(self, dsn: str, direct: str | None) -> Client:
        from rota.app.client import Client

        publish, counters = self.event_bus.publish, self.process_counters
        return Client(dsn, self.settings, direct, publish, self.tracing, counters)

    async def migrate(self) -> list[str]:
        """Apply missing migrations and return their names."""
        from rota.store.migrate import migrate

        applied = await migrate((await self.open()).database)
        return [each.label for each in applied]

    async def close(self) -> None:
        """Close the resources of this event loop."""
        await self.readiness.close()
        await self.database.close()

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
        elif all(isinstance(call, BoundFlow) for call in calls):
            started = await client.start_runs(calls)
        else:
            kinds = sorted({type(call).__name__ for call in calls})
            raise ArgumentError(
                "start_many takes calls of tasks, or calls of flows, made with bind(…), not "
                f"{' and '.join(kinds)}"
            )
        return [started_run(self, *each) for each in zip(calls, started, strict=True)]

    @overload
    async def fork(self, run: Run[R], **options: Unpack[ForkOptions]) -> Run[R]: ...
    @overload
    async def fork(self, run: int, **options: Unpack[ForkOptions]) -> Run[Any]: ...
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

    # Workers

    @show_options(WorkerOptions, WORKER_DEFAULTS)
    def worker(self, **options: Unpack[WorkerOptions]) -> AbstractAsyncContextManager[Worker]:
        """Run a worker inside this program during the block; then drain it.

        `rota workers` and the dashboard show `metadata`. The worker also runs the app's services, unless
        `services` is false.
        """
        from rota.app.worker_entry import run_worker

        check_options(Rota.worker, options, WorkerOptions)
        return run_worker(self, **options)

    @show_options(WorkerOptions, WORKER_DEFAULTS)
    async def work(self, **options: Unpack[WorkerOptions]) -> bool:
        """Work until SIGTERM, SIGINT or a drain request, then finish the running jobs.

        A signal during that shortens it. Return True if a drain request came before any signal: a
        supervisor should then not restart the worker.
        """
        from rota.app.worker_entry import work_until_stopped

        check_options(Rota.work, options, WorkerOptions)
        return await work_until_stopped(self, **options)

    def services(self) -> AbstractAsyncContextManager[ServiceGroup]:
        """Be a candidate for the app's services during the block, and run them while elected.

        For a program without a worker. Workers run the services by default.
        """
        from rota.app.worker_entry import run_services

        return run_services(self)

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

    # Schedules

    @show_options(ScheduleOptions, SCHEDULE_DEFAULTS)
    def schedule(
        self,
        cron: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[S], S]:
        """Start a task or a flow by the clock. Each tick starts one run over all instances.

        Write `@app.schedule("0 7 * * mon-fri", tz="Europe/Paris")` above `@app.task`, or
        `app.schedule(…)(flow)`.

        cron, every, at  timing: one of them; `tz` is the time zone of cron
        name             default: the name of the target; required if it has several schedules
        input            input of the task or flow
        overlap          if the previous run has not ended: "skip" the tick, "queue_one",
                         "cancel_running" to cancel that run, or "allow" both
        catch_up         after a time without workers: "none", the "latest" tick, or "all" of them,
                         up to `at_most`
        grace            maximum delay of a tick; a later one starts nothing
        jitter           maximum random delay in seconds
        starts, ends     no tick before, none after
        max_runs         number of runs after which the schedule ends
        pause_after      number of consecutive failures after which the schedule is paused
        """
        check_options(Rota.schedule, options, ScheduleOptions)
        return schedule_decorator(self.declared_schedules, cron, name, options)

    @show_options(ActionOptions, POLICY_DEFAULTS)
    def action(self, type: str, **options: Unpack[ActionOptions]) -> TaskDecorator:
        """Register a handler for scheduled actions of a type: `@app.action("report")`.

        The handler is a task, and the config of the action holds its arguments. It is retried and recorded
        like any task.
        """
        from rota.model.schedule_view import ACTION_PREFIX

        check_options(Rota.action, options, ActionOptions)
        return self.task(name=ACTION_PREFIX + check_task_name("action", type), **options)

    def actions(self, *types: str, queue: str = "default") -> None:
        """Enable built-in actions: `app.actions("task", "flow", "webhook")`.

        task     runs a task of this app: {"task": "resize", "input": {…}}
        flow     runs a flow: {"flow": "etl", "input": {…}}
        webhook  sends {"url": "https://…", "body": …} to a host in ROTA_WEBHOOK_HOSTS
        """
        from rota.app.actions import register_builtin

        for each in types:
            register_builtin(self, each, queue)

    @property
    def schedules(self) -> Schedules:
        """Operations on schedules at run time: `await app.schedules.create(…)`."""
        from rota.app.schedules import Schedules

        return Schedules(self)

    # Coordination

    async def coordinator(self) -> Coordinator:
        return (await self.open()).coordinator

    @show_options(LockOptions, LOCK_DEFAULTS)
    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        """Return a lock that one instance holds at a time: `async with app.lock("invoices") as lock`.

        The lease lasts `ttl` seconds, and a thread renews it. It expires only if this program dies, freezes
        or cannot reach the database for that long. Work that two holders must never do belongs in a
        transaction that begins with `await lock.assert_held(connection)`.

        wait       maximum seconds to wait for the lock; then Busy is raised
        max_held   an alert is raised if the lock is held longer than this
        on_lost    "raise": leaving the block raises LockLost; "cancel": losing the lock cancels the block
        """
        from rota.app.locks import Lock

        check_options(Rota.lock, options, LockOptions)
        return Lock(self, name, 0, **lock_options(name, options))

    @show_options(TryLockOptions, LOCK_DEFAULTS)
    async def try_lock(self, name: str, **options: Unpack[TryLockOptions]) -> Lock | None:
        """Acquire the lock and return it; return None if it is not free."""
        check_options(Rota.try_lock, options, TryLockOptions)
        lock = self.lock(name, **options, wait=0)
        return lock if await lock.try_acquire() else None

    @show_options(LockOptions, LOCK_DEFAULTS)
    def semaphore(self, name: str, n: int, **options: Unpack[LockOptions]) -> Permit:
        """Return one of `n` permits: `async with app.semaphore("gpu", 4) as permit`.

        The options are those of a lock. All instances should use the same `n`. While they differ, the
        larger one applies.
        """
        from rota.app.locks import Permit

        check_options(Rota.semaphore, options, LockOptions)
        check_permits(name, n)
        return Permit(self, name, n, **lock_options(name, options))

    def rate_limit(
        self, name: str, limit: float = 1, *, per: Duration, burst: int = 1
    ) -> RateLimit:
        """Return a rate limit for all instances: `limit` times in `per` seconds, evenly spread.

        `await app.rate_limit("edgar", 10, per=1).take()` waits for its turn. After a period of lower use,
        up to `burst` units are available at once.
        """
        from rota.app.locks import RateLimit

        return RateLimit(self, check_name(name, "rate"), limit, per, burst)

    @overload
    async def once(
        self,
        key: str,
        fn: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        wait: Duration | None = None,
        retention: Duration | None = WEEK,
        ttl: Duration = 30.0,
        **kwargs: Any,
    ) -> R: ...
    @overload
    async def once(
        self,
        key: str,
        fn: Callable[..., R],
        /,
        *args: Any,
        wait: Duration | None = None,
        retention: Duration | None = WEEK,
        ttl: Duration = 30.0,
        **kwargs: Any,
    ) -> R: ...
    async def once(
        self,
        key: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        wait: Duration | None = None,
        retention: Duration | None = WEEK,
        ttl: Duration = 30.0,
        **kwargs: Any,
    ) -> Any:
        """Call `fn(*args, **kwargs)` once for this key, over all instances, and return the stored result.

        The first caller makes the call. All callers receive its result for `retention` seconds; None keeps
        it forever. While another instance makes the call, wait for it: `wait` seconds at most, then raise
        Busy. If the call raises, its caller receives the error, and the next caller makes the call again.
        An instance that dies during the call, or is disconnected for `ttl` seconds, is replaced: a crash
        repeats the call. Plain functions run in a thread.
        """
        from rota.app.once import prepare_call, run_once

        call = prepare_call(self.coordinator, key, fn, wait, retention, ttl)
        return await run_once(call, partial(fn, *args, **kwargs))

    async def insert_once(
        self,
        connection: Any,
        table: str | Sequence[str],
        rows: Iterable[Mapping[str, Any]],
        *,
        conflict: Sequence[str],
    ) -> Inserted:
        """Insert the rows that do not exist yet, in the transaction of your connection.

        The columns in `conflict` identify a row and must have a unique index. The result contains the
        number of inserted rows, the number of duplicates, and the new rows. Act only on the new rows.
        """
        from rota.coord.insert_once import insert_once

        return await insert_once(connection, table, rows, conflict)

    def leader(
        self,
        name: str,
        *,
        lease: Duration = 10.0,
        label: str = "",
        on_elected: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> Leader:
        """Return a candidate for a leadership that one of all candidates holds.

        `async with leader.term()` waits for the election and leads. `async with leader` is a candidate for
        the whole block, and `leader.is_leader()` is True while it leads. A leader that is frozen or
        disconnected stops leading, by its own clock, before it is replaced after `lease` seconds. A leader
        that dies is replaced within a second or two, if no pooler is in between.
        """
        from rota.coord.leader import Leader

        return Leader(
            self.coordinator,
            check_leader_name(name),
            lease=check_lease(lease),
            label=label,
            on_elected=on_elected,
            on_lost=on_lost,
        )

    def service(
        self,
        name: str,
        *,
        every: Duration | None = None,
        forever: bool = False,
        lease: Duration = 10.0,
    ) -> Callable[[F], F]:
        """Declare a loop that exactly one instance runs while the remaining instances are candidates.

        `@app.service("filings", every=60)` calls the function every 60 seconds, from start to start.
        `forever=True` calls it once and expects it to keep running. Workers of this app run services, and
        so does `async with app.services()`. An instance that is frozen or disconnected is replaced after
        `lease` seconds; one that dies within a second or two, if no pooler is in between.
        """
        return service_decorator(self.registry, name, every, forever, lease)

    @property
    def sync(self) -> SyncRota:
        """Blocking methods: `app.sync.start_many(…)`, `once(…)` and `insert_once(…)`."""
        from rota.app.once import SyncRota

        return SyncRota(self)
