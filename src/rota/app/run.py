"""A run as its starter holds it: ask for its state, wait for its result, cancel it, try it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from rota.engine.execution.call import results_by_task, run_failed
from rota.errors import RotaError, RunCancelled, RunExpired, RunFailed, RunNotFound
from rota.model import codec
from rota.model.durable_context import check_entry_name
from rota.model.settings import Duration, to_seconds
from rota.model.task import TaskDefinition
from rota.store import jobs, listeners, runs, signals
from rota.store.audit import AuditEntry
from rota.store.read import runs as read_runs
from rota.store.runs import RunOutcome

if TYPE_CHECKING:
    from rota.app.rota import Rota
    from rota.app.sync import SyncRun
    from rota.model.explanation import Explanation

R = TypeVar("R")


class Run(Generic[R]):
    """One execution. `created` says whether this start made it, or found it by its key."""

    __slots__ = ("_app", "_task", "created", "id")

    def __init__(
        self, app: Rota, id: int, task: TaskDefinition | None = None, *, created: bool = False
    ) -> None:
        self._app = app
        self._task = task
        self.id = id
        self.created = created

    async def status(self) -> str:
        """Where it is: ready, asleep, running, quarantined, succeeded, failed, cancelled or expired; a
        flow is running until it has ended."""
        client = await self._app.open()
        state = await client.database.fetch_one(read_runs.state(self.id))
        if state is None:
            raise RunNotFound(f"there is no run {self.id}")
        return state

    async def result(self, timeout: Duration | None = None) -> R:
        """What the task returned, once it has. Raises RunFailed (or RunCancelled, RunExpired) if it
        ended without, TimeoutError if it has not ended in time."""
        client = await self._app.open()
        client.listen()
        outcome = await client.results.outcome(
            self.id, None if timeout is None else to_seconds(timeout)
        )
        return await self._read_outcome(outcome)

    async def _read_outcome(self, outcome: RunOutcome) -> R:
        subject = f"run {self.id} ({outcome.name})"
        match outcome.state:
            case "succeeded":
                value: R
                if outcome.is_flow:
                    value = await self._read_flow_results()  # type: ignore[assignment]
                else:
                    task = self._task or self._app.registry.get(outcome.name)
                    value = (
                        task.read_result(outcome.result)
                        if task
                        else _decode_untyped(outcome.result)
                    )
                return value
            case "cancelled":
                raise RunCancelled(f"{subject} was cancelled")
            case "expired":
                raise RunExpired(f"{subject} expired before a worker took it")
            case "skipped":
                raise RunFailed(f"{subject} was skipped")
        if outcome.is_flow:
            raise await self._flow_error(subject)
        raise run_failed(subject, outcome.error)

    async def _read_flow_results(self) -> dict[str, Any]:
        client = await self._app.open()
        found = await client.database.run_with_retry(runs.results(self.id))
        return results_by_task(found, self._app.registry.tasks)

    async def _flow_error(self, subject: str) -> RunFailed:
        """A flow's failure is that of the first of its jobs that failed."""
        client = await self._app.open()
        failed = await client.database.run_with_retry(runs.failures(self.id, 1))
        if not failed:
            return RunFailed(f"{subject} failed")
        first = failed[0]
        if first.state == "expired":
            return RunExpired(f"{subject} failed: job {first.job} ({first.task}) expired")
        return run_failed(f"{subject} failed: job {first.job} ({first.task})", first.error)

    async def cancel(self, *, by: str | None = None) -> str:
        """Make it not happen, or stop. Answers "cancelled", "requested" while it is running, or the
        outcome it already has. `by`: who does so by hand, for the audit log."""
        from rota.engine.audited import run_audited_query

        client = await self._app.open()
        answer = await run_audited_query(
            client.database,
            runs.cancel(self.id),
            self._audit_entry(by, "cancel run"),
            was_done=lambda answer: answer in ("cancelled", "requested"),
            is_idempotent=True,
        )
        if answer is None:
            raise RunNotFound(f"there is no run {self.id}")
        # What could not be passed on at once is, now; and who waits is told when all has committed.
        [released] = await client.database.run_with_retry(runs.release_pending(1000))
        client.notifier.notify(released.queues)
        await client.database.run(listeners.notify_waiters([self.id, *released.runs]))
        return answer

    async def retry(self, *, by: str | None = None) -> None:
        """Try it once more, although it failed, expired or was cancelled. Of a flow, what failed and what
        came of that runs again; what succeeded keeps its results. `by`: who does so by hand."""
        from rota.engine.audited import run_audited_query

        client = await self._app.open()
        queues = await run_audited_query(
            client.database,
            runs.retry(self.id),
            self._audit_entry(by, "retry run"),
            was_done=lambda queues: queues is not None,
            is_idempotent=False,
        )
        if queues is None:
            state = await self.status()
            if state == "quarantined":
                raise RotaError(f"run {self.id} is quarantined; release it instead")
            raise RotaError(
                f"run {self.id} is {state}; only one that failed, expired or was cancelled can be "
                "tried again"
            )
        client.notifier.notify(queues)

    async def signal(self, name: str, payload: Any = None, *, by: str | None = None) -> bool:
        """Send a signal for `ctx.wait_signal(name)` in the run's code, before or after it waits.

        The first signal of a name is kept for good. Return whether this was the first: False if there was
        one already (perhaps this one, sent again because the answer was lost) or if the run has ended.
        `by` names the sender in the audit log.
        """
        from rota.engine.audited import run_audited_query

        check_entry_name("signal", name)
        client = await self._app.open()
        subject = f"the payload of signal {name!r}"
        text = codec.encode(payload, subject, self._app.settings.payload_limit)
        answer = await run_audited_query(
            client.database,
            signals.send(self.id, name, text),
            self._audit_entry(by, "signal run", signal=name),
            was_done=lambda answer: answer == "sent",
            is_idempotent=True,
        )
        if answer is None:
            raise RunNotFound(f"there is no run {self.id}")
        return answer == "sent"

    async def release(self, *, by: str | None = None) -> int:
        """Let it out of quarantine, where a job is put that workers died of too often: it is tried again as
        if nothing had been. Answers how many jobs that were: of a flow, several; 0 if there was none.
        `by`: who does so by hand."""
        from rota.engine.audited import run_audited_query

        client = await self._app.open()
        released = await run_audited_query(
            client.database,
            jobs.release_quarantined(self.id),
            self._audit_entry(by, "release run"),
            was_done=bool,
            is_idempotent=False,
        )
        if not released:
            await self.status()  # says so if there is no such run
        return released

    @property
    def sync(self) -> SyncRun[R]:
        """The same for code that does not await: `app.run(id).sync.result()`."""
        from rota.app.sync import SyncRun

        return SyncRun(self._app, self)

    async def explain(self) -> Explanation:
        """Why it does not run: what it waits for, down to what holds all of it up, and what to do."""
        from rota.engine.diagnosis.explain import explain, sequential_fetch

        client = await self._app.open()
        found = await explain(sequential_fetch(client.database.run), self.id, self._app.settings)
        if found is None:
            raise RunNotFound(f"there is no run {self.id}")
        return found

    def _audit_entry(self, by: str | None, action: str, **detail: str) -> AuditEntry | None:
        return None if by is None else AuditEntry(by, action, str(self.id), detail)

    def __repr__(self) -> str:
        return f"<Run {self.id}{f' of {self._task.name}' if self._task else ''}>"


def _decode_untyped(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)
