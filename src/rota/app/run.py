"""Handle of a run: read its state, wait for its result, cancel it, retry it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

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
    """Handle of one run. `created` is False if the start found an existing run by its key."""

    __slots__ = ("_app", "_task", "created", "id")

    def __init__(
        self, app: Rota, id: int, task: TaskDefinition | None = None, *, created: bool = False
    ) -> None:
        self._app = app
        self._task = task
        self.id = id
        self.created = created

    async def status(self) -> str:
        """Return the state of the run. A flow is running until it has ended.

        The states are queued, sleeping, running, quarantined, succeeded, failed, cancelled and expired.
        """
        client = await self._app.open()
        state = await client.database.fetch_one(read_runs.state(self.id))
        if state is None:
            raise RunNotFound(f"there is no run {self.id}")
        return state

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait for the run and return its result.

        Raise RunFailed (or RunCancelled, RunExpired) if it ended without a result, and TimeoutError if it
        has not ended in time.
        """
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
        """Return the error of the first job of the flow that failed."""
        client = await self._app.open()
        failed = await client.database.run_with_retry(runs.failures(self.id, 1))
        if not failed:
            return RunFailed(f"{subject} failed")
        first = failed[0]
        if first.state == "expired":
            return RunExpired(f"{subject} failed: job {first.job} ({first.task}) expired")
        return run_failed(f"{subject} failed: job {first.job} ({first.task})", first.error)

    async def cancel(self, *, by: str | None = None) -> str:
        """Cancel the run, and return the effect.

        It is "cancelled", "requested" while the run is running, or the outcome that the run already has.
        `by` names the operator in the audit log.
        """
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
        # Release the remaining successors, then notify waiters after everything has committed.
        [released] = await client.database.run_with_retry(runs.release_pending(1000))
        client.notifier.notify(released.queues)
        await client.database.run(listeners.notify_waiters([self.id, *released.runs]))
        return answer

    async def retry(self, *, by: str | None = None) -> None:
        """Retry a run that failed, expired or was cancelled.

        In a flow, failed tasks and the tasks affected by them run again; succeeded ones keep their results.
        `by` names the operator in the audit log.
        """
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
                f"run {self.id} is {state}; only a failed, expired or cancelled run can be retried"
            )
        client.notifier.notify(queues)

    async def signal(self, name: str, payload: Any = None, *, by: str | None = None) -> bool:
        """Send a signal for `ctx.wait_signal(name)` in the run's code, before or after it waits.

        The first signal of a name is kept permanently. Return True if this was the first. Return False if
        there was one already (possibly this one, resent after a lost answer) or if the run has ended. `by`
        names the sender in the audit log.
        """
        return await send_signal(self._app, self.id, name, payload, by=by) == "sent"

    async def release(self, *, by: str | None = None) -> int:
        """Release the run from quarantine, and return the number of released jobs.

        Jobs are quarantined if workers died too often because of them. A released job is retried, and its
        earlier crashes no longer count. A flow may release several jobs; the result is 0 if none was
        quarantined. `by` names the operator in the audit log.
        """
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
            await self.status()  # raises RunNotFound if the run does not exist
        return released

    @property
    def sync(self) -> SyncRun[R]:
        """Blocking methods: `app.run(id).sync.result()`."""
        from rota.app.sync import SyncRun

        return SyncRun(self._app, self)

    async def explain(self) -> Explanation:
        """Return the reasons why the run does not run, down to the root cause, each with a remedy."""
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


SignalStatus = Literal["sent", "known", "ended"]


async def send_signal(
    app: Rota, run: int, name: str, payload: Any, *, by: str | None
) -> SignalStatus:
    """Send a signal to a run. Return "known" if it has one of this name, "ended" if the run has ended."""
    from rota.engine.audited import run_audited_query

    check_entry_name("signal", name)
    text = codec.encode(payload, f"the payload of signal {name!r}", app.settings.payload_limit)
    answer = await run_audited_query(
        (await app.open()).database,
        signals.send(run, name, text),
        None if by is None else AuditEntry(by, "signal run", str(run), {"signal": name}),
        was_done=lambda answer: answer == "sent",
        is_idempotent=True,
    )
    if answer is None:
        raise RunNotFound(f"there is no run {run}")
    return answer  # type: ignore[return-value]
