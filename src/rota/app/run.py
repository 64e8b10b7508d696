"""A run as its starter holds it: ask for its state, wait for its result, cancel it, try it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from rota.engine.call import by_name, failed_by
from rota.errors import RotaError, RunCancelled, RunExpired, RunFailed, RunNotFound
from rota.model import codec
from rota.model.durably import check_label
from rota.model.settings import Duration, seconds
from rota.model.task import Definition
from rota.store import jobs, runs, signals, views, waiters
from rota.store.audit import Deed
from rota.store.runs import Ending

if TYPE_CHECKING:
    from rota.app.blocking import BlockingRun
    from rota.app.rota import Rota
    from rota.model.why import Why

R = TypeVar("R")


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
        """Where it is: ready, asleep, running, quarantined, succeeded, failed, cancelled or expired; a
        flow is running until it has ended."""
        client = await self._app.open()
        state = await client.database.one(views.state(self.id))
        if state is None:
            raise RunNotFound(f"there is no run {self.id}")
        return state

    async def result(self, timeout: Duration | None = None) -> R:
        """What the task returned, once it has. Raises RunFailed (or RunCancelled, RunExpired) if it
        ended without, TimeoutError if it has not ended in time."""
        client = await self._app.open()
        client.listen()
        ending = await client.waiting.outcome(
            self.id, None if timeout is None else seconds(timeout)
        )
        return await self._read(ending)

    async def _read(self, ending: Ending) -> R:
        what = f"run {self.id} ({ending.name})"
        match ending.state:
            case "succeeded":
                value: R
                if ending.is_flow:
                    value = await self._read_flow()  # type: ignore[assignment]
                else:
                    task = self._task or self._app.registry.get(ending.name)
                    value = task.read_result(ending.result) if task else _untyped(ending.result)
                return value
            case "cancelled":
                raise RunCancelled(f"{what} was cancelled")
            case "expired":
                raise RunExpired(f"{what} expired before a worker took it")
            case "skipped":
                raise RunFailed(f"{what} was skipped")
        if ending.is_flow:
            raise await self._failed_flow(what)
        raise failed_by(what, ending.error)

    async def _read_flow(self) -> dict[str, Any]:
        client = await self._app.open()
        found = await client.database.insist(runs.results(self.id))
        return by_name(found, self._app.registry.tasks)

    async def _failed_flow(self, what: str) -> RunFailed:
        """A flow's failure is that of the first of its jobs that failed."""
        client = await self._app.open()
        failed = await client.database.insist(runs.failures(self.id, 1))
        if not failed:
            return RunFailed(f"{what} failed")
        first = failed[0]
        if first.state == "expired":
            return RunExpired(f"{what} failed: job {first.job} ({first.task}) expired")
        return failed_by(f"{what} failed: job {first.job} ({first.task})", first.error)

    async def cancel(self, *, by: str | None = None) -> str:
        """Make it not happen, or stop. Answers "cancelled", "requested" while it is running, or the
        outcome it already has. `by`: who does so by hand, for the audit log."""
        from rota.engine.deeds import act

        client = await self._app.open()
        answer = await act(
            client.database,
            runs.cancel(self.id),
            self._deed(by, "cancel run"),
            did=lambda answer: answer in ("cancelled", "requested"),
            repeats=True,
        )
        if answer is None:
            raise RunNotFound(f"there is no run {self.id}")
        # What could not be passed on at once is, now; and who waits is told when all has committed.
        [settled] = await client.database.insist(runs.settle(1000))
        client.news.tell(settled.queues)
        await client.database.run(waiters.tell([self.id, *settled.runs]))
        return answer

    async def retry(self, *, by: str | None = None) -> None:
        """Try it once more, although it failed, expired or was cancelled. Of a flow, what failed and what
        came of that runs again; what succeeded keeps its results. `by`: who does so by hand."""
        from rota.engine.deeds import act

        client = await self._app.open()
        queues = await act(
            client.database,
            runs.retry(self.id),
            self._deed(by, "retry run"),
            did=lambda queues: queues is not None,
            repeats=False,
        )
        if queues is None:
            state = await self.status()
            if state == "quarantined":
                raise RotaError(f"run {self.id} is quarantined; release it instead")
            raise RotaError(
                f"run {self.id} is {state}; only one that failed, expired or was cancelled can be "
                "tried again"
            )
        client.news.tell(queues)

    async def signal(self, name: str, payload: Any = None, *, by: str | None = None) -> bool:
        """Tell it something, for `ctx.wait(name)` in its code, before or after it waits. The first signal
        of a name stands, for good. Answers whether this was it: False if there was one (which may be
        this one, sent again because its answer was lost), or the run is over. `by`: who sends it."""
        from rota.engine.deeds import act

        check_label("signal", name)
        client = await self._app.open()
        what = f"the payload of signal {name!r}"
        text = codec.encode(payload, what, self._app.settings.payload_limit)
        answer = await act(
            client.database,
            signals.send(self.id, name, text),
            self._deed(by, "signal run", signal=name),
            did=lambda answer: answer == "sent",
            repeats=True,
        )
        if answer is None:
            raise RunNotFound(f"there is no run {self.id}")
        return answer == "sent"

    async def release(self, *, by: str | None = None) -> int:
        """Let it out of quarantine, where a job is put that workers died of too often: it is tried again as
        if nothing had been. Answers how many jobs that were: of a flow, several; 0 if there was none.
        `by`: who does so by hand."""
        from rota.engine.deeds import act

        client = await self._app.open()
        released = await act(
            client.database,
            jobs.release(self.id),
            self._deed(by, "release run"),
            did=bool,
            repeats=False,
        )
        if not released:
            await self.status()  # says so if there is no such run
        return released

    @property
    def blocking(self) -> BlockingRun[R]:
        """The same for code that does not await: `app.run(id).blocking.result()`."""
        from rota.app.blocking import BlockingRun

        return BlockingRun(self._app, self)

    async def why(self) -> Why:
        """Why it does not run: what it waits for, down to what holds all of it up, and what to do."""
        from rota.engine.why import asking, explain

        client = await self._app.open()
        found = await explain(asking(client.database.run), self.id, self._app.settings)
        if found is None:
            raise RunNotFound(f"there is no run {self.id}")
        return found

    def _deed(self, by: str | None, action: str, **detail: str) -> Deed | None:
        return None if by is None else Deed(by, action, str(self.id), detail)

    def __repr__(self) -> str:
        return f"<Run {self.id}{f' of {self._task.name}' if self._task else ''}>"


def _untyped(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)
