"""Task of an app: call it as the original function, start it as a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from rota.app.run import Run
from rota.app.start import missing_attribute, start, start_sync, started_run
from rota.app.start_options import (
    DEFAULTS,
    START_DEFAULTS,
    StartOptions,
    TaskStartOptions,
    merged,
)
from rota.app.sync import SyncRun
from rota.engine.execution.call import BoundTask
from rota.model.options import check_options, show_options
from rota.model.task import TaskDefinition
from rota.store.jobs import StartJob

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
        app, call, connection = self._app, self.bind(*args, **kwargs), self._options.on
        if connection is None:  # without the further coroutine of the general case
            return started_run(app, call, await (await app.open()).start(call.start))
        return await start(app, call, connection)

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
        task = self._task
        return start_sync(task._app, task.bind(*args, **kwargs), task._options.on)
