"""A task as its app has it: call it as the function it was, start it as a job."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

import msgspec

from rota.app.blocking import BlockingRun
from rota.app.how import PLAIN, How, said
from rota.app.run import Run
from rota.engine import tracing
from rota.engine.call import Call
from rota.errors import ArgumentError
from rota.model.retry import Retry
from rota.model.settings import Duration
from rota.model.task import Definition
from rota.store import jobs
from rota.store.jobs import Start, Started
from rota.store.on import is_async, run_on

if TYPE_CHECKING:
    from rota.app.rota import Rota

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A callable registered under a name. Start it with `await task.start(…)`."""

    def __init__(self, app: Rota, definition: Definition, how: How = PLAIN) -> None:
        self._app = app
        self._definition = definition
        self._how = how
        self.name = definition.name
        self.fn = definition.fn
        # As any wrapper has it: other decorators look for these.
        self.__name__ = getattr(definition.fn, "__name__", self.name)
        self.__module__ = definition.fn.__module__
        self.__doc__ = definition.fn.__doc__
        self.__wrapped__ = definition.fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function it was."""
        return self._definition.fn(*args, **kwargs)

    def using(
        self,
        *,
        key: str | None = None,
        unique: Literal["always", "open"] | Duration = "always",
        delay: Duration | None = None,
        at: datetime | None = None,
        expires: Duration | datetime | None = None,
        priority: int | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
        on: Any = None,
    ) -> Task[P, R]:
        """The same task, started another way; what was said with `using` before goes on to hold.

        key       the same key gives the same run; `unique` says for how long: always, while the run
                  is "open" (not finished), or for so many seconds
        delay, at not before then
        expires   not after then: a job that no worker took by that time is over
        on        your own connection or session: the job is started by its commit
        """
        how = said(
            self._how,
            key=key,
            unique=unique,
            delay=delay,
            at=at,
            expires=expires,
            priority=priority,
            retry=retry,
            timeout=timeout,
            queue=queue,
            on=on,
        )
        return Task(self._app, self._definition, how)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A start to be made together with others: `app.start_many([task.call(…), …])`."""
        how, task = self._how, self._definition
        text = task.encode(args, kwargs, self._app.settings.payload_limit)
        if how is PLAIN:
            return Call(task, Start(task.name, text, task.policy.queue, task.policy.priority))
        start = Start(
            task=task.name,
            args=text,
            queue=how.queue or task.policy.queue,
            priority=task.policy.priority if how.priority is None else how.priority,
            key=how.key,
            unique_for=how.unique_for,
            unique_open=how.unique_open,
            at=how.at,
            delay=how.delay,
            expires=how.expires,
            expires_in=how.expires_in,
            options=msgspec.json.encode(how.options).decode() if how.options else None,
        )
        return Call(task, start)

    async def start(self, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a job; it is durable when this returns. With `using(on=…)`, when that commits."""
        call = self.call(*args, **kwargs)
        if self._how.on is None:
            client = await self._app.open()
            started = await client.start(call.start)
        else:
            with self._traced(call) as span:
                answer = self._on(call, span.trace)
                [started] = await answer if isinstance(answer, Awaitable) else answer
                span.tell(tracing.started(started))
        return self._run(started)

    def _traced(self, call: Call[R]) -> tracing.Around:
        return self._app.tracing.start(call.name, [call.start.queue])

    def _on(
        self, call: Call[R], trace: str | None
    ) -> Sequence[Started] | Awaitable[Sequence[Started]]:
        query = jobs.start(call.start, notify=self._app.settings.notify, trace=trace)
        return run_on(self._how.on, query, self._app.settings.schema)

    def _run(self, started: Started) -> Run[R]:
        return Run(self._app, started.run, self._definition, created=started.created)

    @property
    def blocking(self) -> BlockingTask[P, R]:
        """The same for code that does not await: `task.blocking.start(…).result()`."""
        return BlockingTask(self)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class BlockingTask(Generic[P, R]):
    """A task, for code that does not await."""

    def __init__(self, task: Task[P, R]) -> None:
        self._task = task

    def using(self, **how: Any) -> BlockingTask[P, R]:
        """As `task.using(…)`."""
        return BlockingTask(self._task.using(**how))

    def start(self, /, *args: P.args, **kwargs: P.kwargs) -> BlockingRun[R]:
        """Start a job; it is durable when this returns. With `using(on=…)`, when that commits."""
        task, app = self._task, self._task._app
        if task._how.on is not None:
            if is_async(task._how.on):
                raise ArgumentError(
                    "a blocking start cannot use an async connection: await task.using(on=…).start(…)"
                )
            # In the caller's own thread: that is where his connection may be used.
            call = task.call(*args, **kwargs)
            with task._traced(call) as span:
                answer = task._on(call, span.trace)
                assert not isinstance(answer, Awaitable)
                span.tell(tracing.started(answer[0]))
            return BlockingRun(app, task._run(answer[0]))
        return BlockingRun(app, app.portal.run(task.start(*args, **kwargs)))
