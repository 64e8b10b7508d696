"""Journal entries, signals and restarts of jobs, directly in the store.

A job suspends in the engine's own transaction, `outcomes.suspend`, at once or one statement at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.engine.worker import outcomes
from rota.model.journal import JournalEntry, StoredEntry
from rota.model.outcome import Suspended
from rota.store import jobs, signals, steps
from rota.store.jobs import ClaimedJob, MoveResult
from rota.store.query import Query
from rota.store.steps import UnwrittenEntry
from support.stage import Batch, Connection, Stage


def step(name: str = "a", number: int = 1, position: int = 1, **more: Any) -> JournalEntry:
    """Return a finished step, unless `more` overrides it."""
    return JournalEntry(
        "step", name, number, position, in_main_branch=True, **{"result": "1", **more}
    )


def wait(name: str = "go", number: int = 1, position: int = 1, **more: Any) -> JournalEntry:
    """Return a wait that has just begun; `seconds` is its timeout."""
    return JournalEntry(
        "wait", name, number, position, in_main_branch=True, **{"is_open": True, **more}
    )


def sleep(seconds: float, number: int = 1, position: int = 1) -> JournalEntry:
    return JournalEntry("sleep", "sleep", number, position, in_main_branch=True, seconds=seconds)


def received_wait(name: str = "go", payload: str = "1", position: int = 1) -> JournalEntry:
    """Return a wait that received its signal."""
    return JournalEntry("wait", name, 1, position, in_main_branch=True, result=payload)


def timed_out_wait(name: str = "go") -> JournalEntry:
    """Return a wait that timed out."""
    return JournalEntry("wait", name, 1, 1, in_main_branch=True, error='{"type": "SignalTimeout"}')


def with_batch_claim(batch: Batch, claimed: ClaimedJob) -> ClaimedJob:
    """Return the job with the claim of the batch."""
    if claimed.claim != batch.id:
        claimed.claim = batch.id
    return claimed


async def record_entries(
    stage: Stage, batch: Batch, *entries: JournalEntry, on: Connection | None = None
) -> list[UnwrittenEntry]:
    """Record steps of the first job of a batch; return the entries that were not written."""
    job = with_batch_claim(batch, batch.members[0])
    found = await stage.run(steps.record(batch.worker, [(job, each) for each in entries]), on)
    return sorted(found, key=lambda each: each.index)


async def read_journal(stage: Stage, batch: Batch) -> list[StoredEntry]:
    """Return the journal entries that the first job of a batch gets when it runs again."""
    return [each.entry for each in await stage.run(steps.read(batch.members[:1]))]


def suspend_statements(
    batch: Batch, *waits: JournalEntry, kept: Sequence[JournalEntry] | None = None
) -> list[Query[Any]]:
    """Return the statements that suspend the first job of a batch.

    They are expect (if it waits for a signal), hold, record, suspend and release.
    """
    job = with_batch_claim(batch, batch.members[0])
    asleep = Suspended(tuple(waits if kept is None else kept), tuple(waits))
    return outcomes.suspend(batch.worker, [(job, asleep)])


async def suspend_job(
    stage: Stage,
    batch: Batch,
    *waits: JournalEntry,
    kept: Sequence[JournalEntry] | None = None,
    on: Connection | None = None,
) -> MoveResult:
    """Suspend the first job of a batch; return the accepted moves."""
    *_, [moved] = await stage.together(*suspend_statements(batch, *waits, kept=kept), on=on)
    answer: MoveResult = moved
    return answer


async def start_suspended(stage: Stage, *waits: JournalEntry, **more: Any) -> Batch:
    """Suspend a new job; return the batch it was in."""
    batch = await stage.held(1, **more)
    assert (await suspend_job(stage, batch, *waits)).jobs == batch.jobs
    return batch


async def make_timers_due(stage: Stage) -> None:
    """Make every timer due now."""
    await stage.sql("update rota.steps set wake_at = rota.clock() where wake_at is not null")
    await stage.sql("update rota.sleeping set wake_at = rota.clock() where wake_at < 'infinity'")


async def send_signal(
    stage: Stage,
    run: int,
    name: str = "go",
    payload: str = "1",
    on: Connection | None = None,
) -> str | None:
    """Send a signal from another session."""
    [answer] = await stage.run(signals.send(run, name, payload), on or stage.watch)
    return answer


async def read_signal(stage: Stage, run: int, name: str = "go") -> str | None:
    found = await stage.run(signals.read_payload(run, name))
    return found[0] if found else None


async def restart_job(
    stage: Stage, batch: Batch, args: str = '{"n": 2}', on: Connection | None = None
) -> MoveResult:
    """Restart the first job of a batch, as the engine does."""
    job = with_batch_claim(batch, batch.members[0])
    [moved] = await stage.run(steps.restart(batch.worker, [job], [args]), on)
    answer: MoveResult = moved
    return answer


async def claim_queued(stage: Stage, tasks: Sequence[str] = ("work",)) -> Batch:
    """Claim all queued jobs with a new worker."""
    return await stage.claim(await stage.worker(), tasks=tasks)


async def quarantine(stage: Stage, batch: Batch) -> None:
    await stage.run(jobs.quarantine(batch.worker, [batch.id], batch.jobs, [None]))
