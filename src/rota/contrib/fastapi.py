"""Runs started in the session of a request: they start when it commits, and not at all if it rolls back.

    SessionDep = Annotated[AsyncSession, Depends(get_session)]
    RunsDep = Annotated[Runs, Depends(runs_in(SessionDep))]

    @api.post("/orders")
    async def order(new: NewOrder, session: SessionDep, runs: RunsDep) -> None:
        session.add(Order(number=new.number))
        await runs.start(confirm, new.number)
        await session.commit()

FastAPI creates a dependency once per request, so all parts of the request share the session. Any connection
that `options(on=…)` accepts can be used: SQLAlchemy's, sync and async, psycopg's, asyncpg's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, get_origin, overload

from rota.app.flow import Flow
from rota.app.task import Task
from rota.errors import DefinitionError

try:
    from fastapi import Depends
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "rota.contrib.fastapi needs FastAPI: pip install fastapi", name=error.name
    ) from None

if TYPE_CHECKING:
    from rota.app.flow import FlowRun
    from rota.app.run import Run
    from rota.app.sync import SyncRun

__all__ = ["Runs", "SyncRuns", "runs_in"]

P = ParamSpec("P")
R = TypeVar("R")


class Runs:
    """Starts of runs on one connection or session, in its transaction."""

    def __init__(self, session: Any) -> None:
        self.session = session

    @overload
    async def start(self, target: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    async def start(self, target: Flow, **input: Any) -> FlowRun: ...
    async def start(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Start a task or a flow when the session commits: `await
        runs.start(task.options(delay=60), 42)`."""
        return await target.options(on=self.session).start(*args, **kwargs)

    @property
    def sync(self) -> SyncRuns:
        """Blocking version for endpoints that do not await: `runs.sync.start(task, 42)`."""
        return SyncRuns(self.session)


class SyncRuns:
    """Blocking version of `Runs`, for endpoints that do not await and a synchronous session."""

    def __init__(self, session: Any) -> None:
        self.session = session

    @overload
    def start(self, target: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> SyncRun[R]: ...
    @overload
    def start(self, target: Flow, **input: Any) -> SyncRun[dict[str, Any]]: ...
    def start(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Start a task or a flow when the session commits."""
        return target.options(on=self.session).sync.start(*args, **kwargs)


def runs_in(session: Any) -> Callable[..., Awaitable[Runs]]:
    """Return a dependency that provides `Runs` in the session of another dependency.

    Pass that dependency as your endpoints declare it: `Annotated[AsyncSession, Depends(get_session)]`. If
    they use only `Depends(get_session)`, pass the function.
    """
    if get_origin(session) is Annotated:
        dependency = session
    elif callable(session) and not isinstance(session, type):
        dependency = Annotated[Any, Depends(session)]
    else:
        raise DefinitionError(
            "runs_in takes the session dependency of your endpoints: "
            f"Annotated[…, Depends(get_session)], or get_session itself; not {session!r}"
        )

    # Async, because FastAPI would call a plain function in a thread.
    async def runs(session: Any) -> Runs:
        return Runs(session)

    runs.__annotations__ = {"session": dependency, "return": Runs}
    return runs
