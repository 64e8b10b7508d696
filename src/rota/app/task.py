"""Task of an app: call it as the original function, start it as a job."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from rota.app.peer_names import missing_attribute
from rota.app.run import Run
from rota.app.start_options import (
    DEFAULTS,
    START_DEFAULTS,
    StartOptions,
    TaskStartOptions,
    merged,
)
from rota.app.sync import SyncRun
from rota.engine.execution.call import BoundTask
from rota.engine.telemetry import tracing
from rota.errors import ArgumentError
from rota.model.options import check_options, show_options
from rota.model.task import TaskDefinition
from rota.store import jobs
from rota.store.jobs import StartedJob, StartJob
from rota.store.user_connection import is_async, run_on

if TYPE_CHECKING:
    from rota.app.rota import Rota

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """Callable registered under a name. Start it with `await task.start(…)`."""

    def __init__(
        self, app: Rota, definition: TaskDefinition, options: StartOptions = DEFAULTS
    ) -> None:
        self._app = app
        self._definition = definition
        self._options = options
        self.name = definition.name
        self.fn = definition.fn
        # Attributes of a wrapper, which other decorators expect.
        self.__name__ = getattr(definition.fn, "__name__", self.name)
        self.__module__ = definition.fn.__module__
        self.__doc__ = definition.fn.__doc__
        self.__wrapped__ = definition.fn

    if not TYPE_CHECKING:  # a type checker shall still report unknown attributes

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, "task", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original function."""
        return self._definition.fn(*args, **kwargs)

    @show_options(TaskStartOptions, START_DEFAULTS)
    def options(self, **options: Unpack[TaskStartOptions]) -> Task[P, R]:
        """Return the task with other start options. Earlier options remain unless they are replaced.

        key        starts with the same key return the same run; `unique` is the period: "always", "open"
                   (while the run has not finished), or a number of seconds
        delay, at  earliest start
        expires    latest start: a job that no worker has claimed by then expires
        on         your own connection or session: the job is started when it commits
        """
        check_options(Task.options, options, TaskStartOptions)
        return Task(self._app, self._definition, merged(self._options, options))

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> BoundTask[R]:
        """Return a start for `app.start_many([task.bind(…), …])`."""
        options, task = self._options, self._definition
        text = task.encode(args, kwargs, self._app.settings.payload_limit)
        if options is DEFAULTS:
            return BoundTask(
                task, StartJob(task.name, text, task.policy.queue, task.policy.priority)
            )
        start = StartJob(
            task=task.name,
            args=text,
            queue=options.queue or task.policy.queue,
            priority=task.policy.priority if options.priority is None else options.priority,
            key=options.key,
            unique_for=options.unique_for,
            unique_open=options.unique_open,
            at=options.at,
            delay=options.delay,
            expires=options.expires,
            expires_in=options.expires_in,
            options=msgspec.json.encode(options.job_options).decode()
            if options.job_options
            else None,
        )
        return BoundTask(task, start)

    async def start(self, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a job. It is durable when this returns; with `options(on=…)`, when
        that connection commits."""
        call = self.bind(*args, **kwargs)
        if self._options.on is None:
            client = await self._app.open()
            started = await client.start(call.start)
        else:
            with self._start_span(call) as span:
                answer = self._start_on_connection(call, span.trace)
                [started] = await answer if isinstance(answer, Awaitable) else answer
                span.set_attributes(tracing.start_attributes(started))
        return self._make_run(started)

    def _start_span(self, call: BoundTask[R]) -> tracing.SpanScope:
        return self._app.tracing.start(call.name, [call.start.queue])

    def _start_on_connection(
        self, call: BoundTask[R], trace: str | None
    ) -> Sequence[StartedJob] | Awaitable[Sequence[StartedJob]]:
        query = jobs.start(call.start, notify=self._app.settings.notify, trace=trace)
        return run_on(self._options.on, query, self._app.settings.schema)

    def _make_run(self, started: StartedJob) -> Run[R]:
        return Run(self._app, started.run, self._definition, created=started.created)

    @property
    def sync(self) -> SyncTask[P, R]:
        """Blocking methods: `task.sync.start(…).result()`."""
        return SyncTask(self)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class SyncTask(Generic[P, R]):
    """Blocking version of a task."""

    def __init__(self, task: Task[P, R]) -> None:
        self._task = task

    @show_options(TaskStartOptions, START_DEFAULTS)
    def options(self, **options: Unpack[TaskStartOptions]) -> SyncTask[P, R]:
        """Return the task with other start options, as `task.options(…)`."""
        return SyncTask(self._task.options(**options))

    def start(self, /, *args: P.args, **kwargs: P.kwargs) -> SyncRun[R]:
        """Start a job. It is durable when this returns; with `options(on=…)`, when
        that connection commits."""
        task, app = self._task, self._task._app
        if task._options.on is not None:
            if is_async(task._options.on):
                raise ArgumentError(
                    "a blocking start cannot use an async connection: await task.options(on=…).start(…)"
                )
            # Runs in the caller's thread, because their connection may be used only there.
            call = task.bind(*args, **kwargs)
            with task._start_span(call) as span:
                answer = task._start_on_connection(call, span.trace)
                assert not isinstance(answer, Awaitable)
                span.set_attributes(tracing.start_attributes(answer[0]))
            return SyncRun(app, task._make_run(answer[0]))
        return SyncRun(app, app.loop_thread.run(task.start(*args, **kwargs)))
