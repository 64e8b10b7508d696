"""Runs started in the session of a request: they begin when it commits, and never if it does not.

    SessionDep = Annotated[AsyncSession, Depends(get_session)]
    RunsDep = Annotated[Runs, Depends(runs_in(SessionDep))]

    @api.post("/orders")
    async def order(new: NewOrder, session: SessionDep, runs: RunsDep) -> None:
        session.add(Order(number=new.number))
        await runs.start(confirm, new.number)
        await session.commit()

FastAPI makes a dependency once for a request, so that it is the same session, whoever asks for it. Any
connection that `options(on=…)` takes will do: SQLAlchemy's, sync and async, psycopg's, asyncpg's.
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
    """Starts runs on one connection or session, in its transaction."""

    def __init__(self, session: Any) -> None:
        self.session = session

    @overload
    async def start(self, target: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    async def start(self, target: Flow, **input: Any) -> FlowRun: ...
    async def start(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Start a task or a flow, also one with `options(…)`:
        `await runs.start(task.options(delay=60), 42)`. It begins when the session commits."""
        return await target.options(on=self.session).start(*args, **kwargs)

    @property
    def sync(self) -> SyncRuns:
        """For endpoints that do not await: `runs.sync.start(task, 42)`."""
        return SyncRuns(self.session)


class SyncRuns:
    """`runs.sync`, for endpoints that do not await, with a session that is not awaited."""

    def __init__(self, session: Any) -> None:
        self.session = session

    @overload
    def start(self, target: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> SyncRun[R]: ...
    @overload
    def start(self, target: Flow, **input: Any) -> SyncRun[dict[str, Any]]: ...
    def start(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Start a task or a flow by the commit of the session."""
        return target.options(on=self.session).sync.start(*args, **kwargs)


def runs_in(session: Any) -> Callable[..., Awaitable[Runs]]:
    """A dependency: `Runs` in the session that another one gives. That is named as your endpoints name it,
    `Annotated[AsyncSession, Depends(get_session)]`, or by its function, if they say `Depends(get_session)`
    and nothing else."""
    if get_origin(session) is Annotated:
        dependency = session
    elif callable(session) and not isinstance(session, type):
        dependency = Annotated[Any, Depends(session)]
    else:
        raise DefinitionError(
            "runs_in takes what your endpoints take for the session: "
            f"Annotated[…, Depends(get_session)], or get_session itself; not {session!r}"
        )

    # Async, though it awaits nothing: FastAPI calls any other in a thread.
    async def runs(session: Any) -> Runs:
        return Runs(session)

    runs.__annotations__ = {"session": dependency, "return": Runs}
    return runs
