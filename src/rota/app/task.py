"""A task as its app has it: call it as the function it was, start it as a job."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

import msgspec

from rota.app.blocking import BlockingRun
from rota.app.run import Run
from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.retry import Retry
from rota.model.settings import Duration, seconds
from rota.model.task import Definition, check_name, check_priority
from rota.store import jobs
from rota.store.jobs import Start, Started
from rota.store.on import is_async, run_on

if TYPE_CHECKING:
    from rota.app.rota import Rota

P = ParamSpec("P")
R = TypeVar("R")


class Call(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A start that has not happened yet: checked, encoded, ready to go with others."""

    task: Definition
    start: Start


@dataclass(frozen=True, slots=True)
class _How:
    """What `using(…)` said."""

    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    unique_for: timedelta | None = None
    unique_open: bool = False
    at: datetime | None = None
    delay: timedelta | None = None
    expires: datetime | None = None
    expires_in: timedelta | None = None
    options: dict[str, Any] = field(default_factory=dict)
    on: Any = None


_PLAIN = _How()


class Task(Generic[P, R]):
    """A callable registered under a name. Start it with `await task.start(…)`."""

    def __init__(self, app: Rota, definition: Definition, how: _How | None = None) -> None:
        self._app = app
        self._definition = definition
        self._how = how or _PLAIN
        self.name = definition.name
        self.fn = definition.fn
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
        """The same task, started another way.

        key       the same key gives the same run; `unique` says for how long: always, while the run
                  is "open" (not finished), or for so many seconds
        delay, at not before then
        expires   not after then: a job that no worker took by that time is over
        on        your own connection or session: the job is started by its commit
        """
        if delay is not None and at is not None:
            raise ArgumentError("using(delay=…, at=…): say one of them")
        _check_zone("at", at)
        if isinstance(expires, datetime):
            _check_zone("expires", expires)
        if key is not None and not _is_storable(key):
            raise ArgumentError("a key is 1 to 500 characters, without NUL or lone surrogates")
        if isinstance(unique, str) and unique not in ("always", "open"):
            raise ArgumentError(f'unique is "always", "open" or a duration, not {unique!r}')
        if unique != "always" and key is None:
            raise ArgumentError("using(unique=…) limits a key: say which with key=…")
        options: dict[str, Any] = {}
        if retry is not None:
            options["retry"] = retry.document()
        if timeout is not None:
            if not seconds(timeout) > 0:
                raise DefinitionError(f"timeout must be above 0 seconds, not {timeout}")
            options["timeout"] = seconds(timeout)
        how = replace(
            self._how,
            key=key,
            unique_for=None if isinstance(unique, str) else _span(unique),
            unique_open=unique == "open",
            at=at,
            delay=None if delay is None else _span(delay),
            expires=expires if isinstance(expires, datetime) else None,
            expires_in=None if expires is None or isinstance(expires, datetime) else _span(expires),
            priority=None if priority is None else check_priority(priority),
            queue=None if queue is None else check_name("queue", queue),
            options=options,
            on=on,
        )
        return Task(self._app, self._definition, how)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A start to be made together with others: `app.start_many([task.call(…), …])`."""
        how, task = self._how, self._definition
        text = task.encode(args, kwargs, self._app.settings.payload_limit)
        if how is _PLAIN:
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

    async def start(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a job; it is durable when this returns. With `using(on=…)`, when that commits."""
        call = self.call(*args, **kwargs)
        if self._how.on is None:
            client = await self._app.open()
            started = await client.start(call.start)
        else:
            answer = self._on(call)
            [started] = await answer if isinstance(answer, Awaitable) else answer
        return self._run(started)

    def _on(self, call: Call[R]) -> Sequence[Started] | Awaitable[Sequence[Started]]:
        query = jobs.start(call.start, notify=self._app.settings.notify)
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
    def __init__(self, task: Task[P, R]) -> None:
        self._task = task

    def using(self, **how: Any) -> BlockingTask[P, R]:
        """As `task.using(…)`."""
        return BlockingTask(self._task.using(**how))

    def start(self, *args: P.args, **kwargs: P.kwargs) -> BlockingRun[R]:
        task, app = self._task, self._task._app
        if task._how.on is not None:
            if is_async(task._how.on):
                raise ArgumentError(
                    "a blocking start cannot use an async connection: await task.using(on=…).start(…)"
                )
            # In the caller's own thread: that is where his connection may be used.
            answer = task._on(task.call(*args, **kwargs))
            assert not isinstance(answer, Awaitable)
            return BlockingRun(app, task._run(answer[0]))
        return BlockingRun(app, app.portal.run(task.start(*args, **kwargs)))


def _span(value: Duration) -> timedelta:
    try:
        span = timedelta(seconds=seconds(value))
    except (ValueError, OverflowError, TypeError):
        raise ArgumentError(f"{value!r} is no duration: say seconds, or a timedelta") from None
    if span < timedelta(0):
        raise ArgumentError(f"a duration cannot be negative, it is {value}")
    return span


def _is_storable(key: str) -> bool:
    return 1 <= len(key) <= 500 and "\x00" not in key and codec.storable(key) == key


def _check_zone(name: str, value: datetime | None) -> None:
    if value is not None and value.tzinfo is None:
        raise ArgumentError(
            f"{name}={value.isoformat()} has no time zone; use datetime.now(timezone.utc), or one "
            "with a zone of your own"
        )
