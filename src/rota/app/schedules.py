"""Schedules at run time: make them, change them, pause them, start them by hand, see how they stand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack

from rota.app.blocking import BlockingRun
from rota.app.flow import Flow
from rota.app.run import Run
from rota.app.scheduling import check_text, define, encode_input, in_utc, kind_of, length_of
from rota.app.task import Task
from rota.app.ticking import check, maker
from rota.engine import by_hand, schedules
from rota.engine.spans import RUN_ID, SCHEDULE
from rota.errors import ArgumentError
from rota.model.agenda import ACTION, Schedule, Tick
from rota.model.schedule import CatchUp, Overlap
from rota.model.settings import Duration
from rota.model.task import check_name
from rota.model.timetable import check_moment
from rota.store import agenda, waiters
from rota.store.audit import Deed
from rota.store.schedules import Definition

if TYPE_CHECKING:
    from rota.app.rota import Rota

P = ParamSpec("P")
T = TypeVar("T")

WHEN = ("cron", "every", "at")
STATES = ("active", "paused", "disabled", "ended")

PAGE = 1000
"""Schedules read at once."""


class Changes(TypedDict, total=False):
    """What of a schedule can be changed."""

    input: Mapping[str, Any] | None
    config: Mapping[str, Any] | None
    tenant: str | None
    cron: str | None
    every: Duration | None
    at: datetime | None
    tz: str
    overlap: Overlap
    catch_up: CatchUp
    at_most: int
    grace: Duration | None
    jitter: Duration
    starts: datetime | None
    ends: datetime | None
    max_runs: int | None
    pause_after: int | None
    queue: str | None


class Schedules:
    """`app.schedules`."""

    def __init__(self, app: Rota) -> None:
        self._app = app

    async def create(
        self,
        name: str,
        task: Task[Any, Any] | Flow | str | None = None,
        *,
        action: str | None = None,
        config: Mapping[str, Any] | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | None = None,
        tz: str = "UTC",
        input: Mapping[str, Any] | None = None,
        tenant: str | None = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "latest",
        at_most: int = 100,
        grace: Duration | None = None,
        jitter: Duration = 0.0,
        starts: datetime | None = None,
        ends: datetime | None = None,
        max_runs: int | None = None,
        pause_after: int | None = None,
        queue: str | None = None,
        by: str | None = None,
    ) -> None:
        """Make a schedule: of a task or a flow, by itself or by its name, or of an action with its config.
        The rest is as in `@app.schedule`. Raises ArgumentError if there is one of that name. `by`: who
        does so by hand, for the audit log; here and below."""
        kind, target = self._target(task, action)
        if config is not None and action is None:
            raise ArgumentError("config is an action's; a task or a flow has input")
        if input is not None and action is not None:
            raise ArgumentError("input is a task's or a flow's; an action has config")
        definition = define(
            name,
            kind,
            target,
            input=config if action is not None else input,
            tenant=tenant,
            cron=cron,
            every=every,
            at=at,
            tz=tz,
            overlap=overlap,
            catch_up=catch_up,
            at_most=at_most,
            grace=grace,
            jitter=jitter,
            starts=starts,
            ends=ends,
            max_runs=max_runs,
            pause_after=pause_after,
            queue=queue,
        )
        check(self._app, definition)
        client = await self._app.open()
        deed = _deed(by, "create schedule", name)
        if not await schedules.create(client.database, definition, deed):
            raise ArgumentError(
                f"there is a schedule called {name!r} already; change it with update, or delete it first"
            )
        client.news.tell([waiters.SCHEDULE])

    def _target(self, task: Any, action: str | None) -> tuple[str, str]:
        if (task is None) is (action is None):
            raise ArgumentError(
                "a schedule is of a task or a flow, or of an action: say one of them"
            )
        if action is not None:
            return "action", ACTION + check_name("action", action)
        if not isinstance(task, str):
            return kind_of(task)
        if task in self._app.registry.flows:
            return "flow", task
        if task in self._app.registry.tasks:
            return "task", task
        raise ArgumentError(f"this app has no task and no flow called {task!r}")

    async def update(self, name: str, *, by: str | None = None, **changes: Unpack[Changes]) -> None:
        """Change a schedule: when it comes, with what input, by which policies. Other times count from now
        on; what else is changed goes for the next tick."""
        client = await self._app.open()
        changed = _changed(name, changes)

        def fits(definition: Definition) -> None:
            if "config" in changes and definition.kind != "action":
                raise ArgumentError(f"config is an action's; schedule {name!r} has input")
            check(self._app, definition)

        deed = _deed(by, "update schedule", name)
        await schedules.update(client.database, name, changed, fits, deed)
        client.news.tell([waiters.SCHEDULE])

    async def pause(self, name: str, why: str = "by hand", *, by: str | None = None) -> None:
        """Start nothing until it is resumed; deploys do not change that."""
        client = await self._app.open()
        deed = _deed(by, "pause schedule", name)
        await schedules.pause(client.database, name, check_text("reason", why), deed)

    async def resume(self, name: str, *, by: str | None = None) -> None:
        """Go on with the next tick. What came meanwhile is missed, and can be backfilled; one that comes
        once, comes now if its time is over."""
        client = await self._app.open()
        await schedules.resume(client.database, name, _deed(by, "resume schedule", name))
        client.news.tell([waiters.SCHEDULE])

    async def delete(self, name: str, *, by: str | None = None) -> None:
        """Forget it and its ticks. Runs that it has started go on. What code of a worker that is there
        declares has to go from there first: it would begin anew with the next one."""
        database = (await self._app.open()).database
        await schedules.delete(database, name, _deed(by, "delete schedule", name))

    async def trigger(self, name: str, *, by: str | None = None) -> Run[Any]:
        """Start a run of it now, besides those of its ticks, whatever its state."""
        client = await self._app.open()
        deed = _deed(by, "trigger schedule", name)
        with self._app.tracing.start(name, what=SCHEDULE) as span:
            make = partial(maker, self._app, trace=span.trace)
            id, queues = await by_hand.trigger(client.database, name, make, deed)
            span.tell({RUN_ID: id})
        client.news.tell(queues)
        return Run(self._app, id, created=True)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        told: Callable[[int, int], None] = lambda done, many: None,
        by: str | None = None,
    ) -> list[Run[Any]]:
        """Start a run for each tick from `start` until before `end` that has had none; `ctx.backfilled`
        says so. They run side by side. `told` is called with how many of how many ticks are seen to.

        Many are started in several transactions. If one fails, do it again: what has had a run gets no
        other."""
        for each in (start, end):
            if each.tzinfo is None:
                raise ArgumentError(
                    f"{each.isoformat(sep=' ')} has no time zone; datetime(…, tzinfo=UTC) has one"
                )
        # In their own zone, a moment earlier may be an hour earlier.
        start, end = start.astimezone(UTC), end.astimezone(UTC)
        client = await self._app.open()
        runs: list[Run[Any]] = []
        deed = _deed(by, "backfill schedule", name)
        with self._app.tracing.start(name, what=SCHEDULE) as span:
            make = partial(maker, self._app, trace=span.trace)
            filling = by_hand.backfill(client.database, name, start, end, make, deed)
            async for filled in filling:
                client.news.tell(filled.queues)
                runs += [Run(self._app, id, created=True) for id in filled.runs]
                told(filled.done, filled.many)
        return runs

    async def get(self, name: str) -> Schedule:
        """How it is defined and how it stands. Raises ScheduleNotFound."""
        client = await self._app.open()
        found = await client.database.one(agenda.schedules(name, limit=1))
        if found is None:
            raise schedules.missing(name)
        return found

    async def ticks(self, name: str, limit: int = 100) -> list[Tick]:
        """Its last ticks, the last first: when each was planned and started, by whom, and what became of
        it. The last thousand are kept."""
        client = await self._app.open()
        found = await client.database.run(agenda.ticks(name, limit))
        if not found:
            await self.get(name)
        return found

    @property
    def blocking(self) -> BlockingSchedules:
        """The same for code that does not await: `app.schedules.blocking.pause(…)`."""
        return BlockingSchedules(self._app, self)

    async def list(self, *, tenant: str | None = None, state: str | None = None) -> list[Schedule]:
        """All of them by name, or those of a tenant or in a state."""
        if state is not None and state not in STATES:
            raise ArgumentError(f"state is one of {', '.join(STATES)}, not {state!r}")
        client = await self._app.open()
        found: list[Schedule] = []
        while True:
            after = found[-1].name if found else None
            query = agenda.schedules(tenant=tenant, state=state, after=after, limit=PAGE)
            page = await client.database.run(query)
            found += page
            if len(page) < PAGE:
                return found


def _deed(by: str | None, action: str, name: str) -> Deed | None:
    return None if by is None else Deed(by, action, name)


def _changed(name: str, changes: Changes) -> dict[str, Any]:
    """In the words of a definition."""
    known = Changes.__annotations__
    if unknown := set(changes) - known.keys():
        raise ArgumentError(
            f"a schedule has no {sorted(unknown)[0]!r} to change; it has {', '.join(sorted(known))}"
        )
    if "input" in changes and "config" in changes:
        raise ArgumentError("input and config are the same thing: say the one that it has")
    changed: dict[str, Any] = dict(changes)
    for word in ("input", "config"):
        if word in changed:
            changed["input"] = encode_input(name, changed.pop(word))
    for word in ("every", "grace", "jitter"):
        if changed.get(word) is not None:
            changed[word] = length_of(word, changed[word])
    for word in ("at", "starts", "ends"):
        if changed.get(word) is not None:
            check_moment(word, changed[word])
            changed[word] = in_utc(word, changed[word])
    if changed.get("tenant") is not None:
        check_text("tenant", changed["tenant"])
    if changed.get("queue") is not None:
        check_name("queue", changed["queue"])
    if any(changed.get(each) is not None for each in WHEN):
        for each in WHEN:
            changed.setdefault(each, None)
    return changed


def _blocks(
    method: Callable[Concatenate[Schedules, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingSchedules, P], T]:
    def call(self: BlockingSchedules, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._app.portal.run(method(self._schedules, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class BlockingSchedules:
    """Schedules, for code that does not await."""

    def __init__(self, app: Rota, schedules: Schedules) -> None:
        self._app = app
        self._schedules = schedules

    create = _blocks(Schedules.create)
    update = _blocks(Schedules.update)
    pause = _blocks(Schedules.pause)
    resume = _blocks(Schedules.resume)
    delete = _blocks(Schedules.delete)
    get = _blocks(Schedules.get)
    list = _blocks(Schedules.list)
    ticks = _blocks(Schedules.ticks)

    def trigger(self, name: str) -> BlockingRun[Any]:
        """As `await app.schedules.trigger(…)`."""
        return BlockingRun(self._app, self._app.portal.run(self._schedules.trigger(name)))

    def backfill(self, name: str, start: datetime, end: datetime) -> tuple[BlockingRun[Any], ...]:
        """As `await app.schedules.backfill(…)`."""
        runs = self._app.portal.run(self._schedules.backfill(name, start, end))
        return tuple(BlockingRun(self._app, each) for each in runs)
