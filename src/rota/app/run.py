"""A run as its starter holds it: ask for its state, wait for its result, cancel it, try it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from rota.errors import RotaError, RunCancelled, RunExpired, RunFailed, RunNotFound
from rota.model.settings import Duration, seconds
from rota.model.task import Definition
from rota.store import jobs, views, waiters
from rota.store.jobs import Ending

if TYPE_CHECKING:
    from rota.app.rota import Rota

R = TypeVar("R")


class RunError(msgspec.Struct, frozen=True):
    """A task's own error, as it was kept."""

    type: str
    message: str
    traceback: str
    attempt: int


_error = msgspec.json.Decoder(RunError)


class Run(Generic[R]):
    """One execution. `created` says whether this start made it, or found it by its key."""

    __slots__ = ("_app", "_task", "created", "id")

    def __init__(
        self, app: Rota, id: int, task: Definition | None = None, *, created: bool = False
    ) -> None:
        self._app = app
        self._task = task
        self.id = id
        self.created = created

    async def status(self) -> str:
        """Where it is: ready, asleep, running, succeeded, failed, cancelled or expired."""
        client = await self._app.open()
        detail = await client.database.one(views.run(self.id))
        if detail is None:
            raise RunNotFound(f"there is no run {self.id}")
        return detail.state

    async def result(self, timeout: Duration | None = None) -> R:
        """What the task returned, once it has. Raises RunFailed (or RunCancelled, RunExpired) if it
        ended without, TimeoutError if it has not ended in time."""
        client = await self._app.open()
        client.listen()
        ending = await client.waiting.outcome(
            self.id, None if timeout is None else seconds(timeout)
        )
        return self._read(ending)

    def _read(self, ending: Ending) -> R:
        match ending.state:
            case "succeeded":
                task = self._task or self._app.registry.get(ending.task)
                value: R = task.read_result(ending.result) if task else _untyped(ending.result)
                return value
            case "cancelled":
                raise RunCancelled(f"run {self.id} ({ending.task}) was cancelled")
            case "expired":
                raise RunExpired(f"run {self.id} ({ending.task}) expired before a worker took it")
        error = _error.decode(ending.error or b"null")
        raise RunFailed(
            f"run {self.id} ({ending.task}) failed at attempt {error.attempt}: "
            f"{error.type}: {error.message}",
            kind=error.type,
            reason=error.message,
            traceback=error.traceback,
        )

    async def cancel(self) -> str:
        """Make it not happen, or stop. Answers "cancelled", "requested" while it is running, or the
        outcome it already has."""
        client = await self._app.open()
        [answer] = await client.database.insist(jobs.cancel(self.id))
        if answer is None:
            raise RunNotFound(f"there is no run {self.id}")
        if answer == "cancelled":
            await client.database.run(waiters.tell([self.id]))
        return answer

    async def retry(self) -> None:
        """Try it once more, although it failed, expired or was cancelled."""
        client = await self._app.open()
        queue = await client.database.one(jobs.again(self.id))
        if queue is None:
            raise RotaError(
                f"run {self.id} is {await self.status()}; only one that failed, expired or was "
                "cancelled can be tried again"
            )
        client.news.tell([queue])

    def __repr__(self) -> str:
        return f"<Run {self.id}{f' of {self._task.name}' if self._task else ''}>"


def _untyped(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)
