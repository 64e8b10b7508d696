"""Restart of a run without its journal, and a fork from a step."""

from __future__ import annotations

import asyncio

import pytest

from rota.model.journal import JournalEntry
from rota.store import runs, steps
from rota.store.jobs import MoveResult
from support import flows
from support.journals import (
    claim_queued,
    read_journal,
    read_signal,
    received_wait,
    record_entries,
    restart_job,
    send_signal,
    sleep,
    start_suspended,
    step,
    suspend_job,
    timed_out_wait,
    wait,
)
from support.lost_workers import (
    NOTHING,
    History,
    declare_dead,
    lose_worker,
    reap,
    start_with,
    suspect,
)
from support.old_runs import OldRuns
from support.stage import Batch, Stage

# Restart of the same run


async def test_restart_has_new_arguments_and_empty_journal(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, step("a"), sleep(5, position=2), step("b", position=3))
    await stage.sql("insert into rota.checkpoints (job, state) values (%s, '1')", batch.jobs[0])

    moved = await restart_job(stage, batch, '{"n": 7}')

    assert moved == MoveResult(batch.jobs, ["default"], [], False)
    assert await stage.held_by(batch.id) == []
    new = await claim_queued(stage)
    assert new.jobs == batch.jobs
    [member] = new.members
    assert (member.args, member.attempt, member.has_steps, member.checkpoint) == (
        '{"n": 7}',
        1,
        None,
        None,
    )
    assert await read_journal(stage, new) == []


@pytest.mark.parametrize("history", [(3, None), (2, "grave")])
async def test_restart_of_crashed_job_resets_attempt_and_suspicion(
    stage: Stage, history: History
) -> None:
    await start_with(stage, history, attempt=3)
    worker = await stage.worker()
    batch = await suspect(stage, worker) if history[1] else await stage.claim(worker)

    await restart_job(stage, batch)

    assert await stage.sql("select attempt, crashes, suspicion from rota.queued") == [(1, 0, None)]


async def test_restart_queues_job_behind_queued_jobs(stage: Stage) -> None:
    batch = await stage.held(1)
    others = await stage.start_several(2)

    await restart_job(stage, batch)

    assert (await claim_queued(stage)).jobs == [*others, *batch.jobs]


async def test_restart_keeps_journal_and_signals_of_other_jobs(stage: Stage) -> None:
    batch = await stage.held(2)
    first, second = batch.members
    await stage.run(steps.record(batch.worker, [(first, step("a")), (second, step("b"))]))
    await send_signal(stage, second.job)

    await restart_job(stage, batch)

    assert await stage.sql("select job, name from rota.steps") == [(second.job, "b")]
    assert await read_signal(stage, second.job) == "1"
    assert await stage.held_by(batch.id) == [second.job]


async def test_restart_deletes_only_received_signals(stage: Stage) -> None:
    batch = await stage.held(1)
    run = batch.jobs[0]
    for name in ("heard", "unheard", "late", "waited for"):
        await send_signal(stage, run, name)
    await record_entries(
        stage, batch, received_wait("heard"), timed_out_wait("late"), wait("waited for", position=3)
    )

    await restart_job(stage, batch)

    assert await stage.sql("select name from rota.signals order by name") == [
        "late",
        "unheard",
        "waited for",
    ]
    assert await send_signal(stage, run, "heard", '"news"') == "sent"
    assert await send_signal(stage, run, "unheard", '"news"') == "known"


async def test_restarted_job_waits_for_a_new_signal(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("next"))
    await send_signal(stage, batch.jobs[0], "next", '"one"')
    batch = await claim_queued(stage)
    await record_entries(stage, batch, received_wait("next", '"one"'))
    await restart_job(stage, batch)
    batch = await claim_queued(stage)

    await suspend_job(stage, batch, wait("next"))

    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await send_signal(stage, batch.jobs[0], "next", '"two"') == "sent"
    assert [each.payload for each in await read_journal(stage, await claim_queued(stage))] == [
        '"two"'
    ]


async def test_restart_of_flow_job_keeps_signals_of_the_run(stage: Stage) -> None:
    """Other jobs of the run may still wait for them."""
    laid = await flows.start(stage, {"a": [], "b": []})
    await send_signal(stage, laid.run)
    batch = await flows.claim_only(stage, await stage.worker(), "a")
    await record_entries(stage, batch, received_wait("go"))

    await restart_job(stage, batch)

    assert await read_signal(stage, laid.run) == "1"
    assert await stage.place(laid["a"]) == "queued"


async def test_restarted_job_starts_new_child_runs(stage: Stage) -> None:
    caller = await stage.held(1)
    [first] = await flows.start_child_runs(stage, caller, 1)

    await restart_job(stage, caller)

    caller = await claim_queued(stage)
    [second] = await flows.start_child_runs(stage, caller, 1)
    assert second.run != first.run
    assert second.created


async def test_restart_with_cancel_request_cancels_the_job(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, step("a"))
    await flows.cancel(stage, batch.jobs[0])

    assert (await restart_job(stage, batch)).jobs == batch.jobs

    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert await stage.sql("select name from rota.steps") == ["a"]
    assert await stage.sql("select * from rota.cancels") == []


async def test_restart_by_former_holder_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, step("a"), received_wait("go", position=2))
    await send_signal(stage, batch.jobs[0])
    await lose_worker(stage, batch)
    taken = await suspect(stage, await stage.worker())
    before = await stage.everything()

    assert await restart_job(stage, batch) == NOTHING
    mixed = Batch(taken.worker, batch.id, batch.jobs, batch.members)
    assert await restart_job(stage, mixed) == NOTHING
    assert await stage.everything() == before


async def test_restart_during_reap_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, step("a"))
    await declare_dead(stage, batch.worker)
    reaping = await stage.connect(engine=True)

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        beginning = stage.meanwhile(restart_job(stage, batch))
        await stage.waits(stage.engine, reaping)

    assert await beginning == NOTHING
    assert await stage.sql("select name from rota.steps") == ["a"]


async def test_restart_sent_twice_restarts_once(
    stage: Stage,
) -> None:
    batch = await stage.held(1)
    await restart_job(stage, batch)
    new = await claim_queued(stage)
    await record_entries(stage, new, step("a"))

    assert await restart_job(stage, batch) == NOTHING
    assert await stage.sql("select name from rota.steps") == ["a"]


# Fork from a step


async def complete_run_with_journal(stage: Stage) -> int:
    """Complete a run that has a value, steps, a sleep and waits in its journal."""
    batch = await stage.held(1)
    run = batch.jobs[0]
    await send_signal(stage, run, "go", '"yes"')
    await send_signal(stage, run, "later", '"no"')
    now = JournalEntry("value", "now", 1, 1, in_main_branch=True, result='"then"')
    await record_entries(stage, batch, now, step("a", position=2), received_wait("go", '"yes"', 3))
    await record_entries(
        stage, batch, sleep(-1, position=4), step("b", position=5), step("b", 2, 6)
    )
    await record_entries(stage, batch, received_wait("later", '"no"', 7), step("c", position=8))
    await stage.complete(batch)
    return run


async def fork(stage: Stage, run: int, name: str, args: str | None = None) -> int | None:
    [(forked, queue)] = await stage.run(runs.fork_job(run, name, args))
    assert (queue is None) == (forked is None)
    return forked


@pytest.mark.parametrize(
    ("name", "copied", "heard_of"),
    [
        ("a", ["now"], []),
        ("go", ["now", "a"], []),
        ("sleep", ["now", "a", "go"], ["go"]),
        ("b", ["now", "a", "go", "sleep"], ["go"]),
        ("c", ["now", "a", "go", "sleep", "b", "b", "later"], ["go", "later"]),
    ],
)
async def test_fork_copies_journal_before_the_step(
    stage: Stage, name: str, copied: list[str], heard_of: list[str]
) -> None:
    run = await complete_run_with_journal(stage)

    forked = await fork(stage, run, name)

    batch = await claim_queued(stage)
    assert batch.jobs == [forked]
    assert [each.name for each in await read_journal(stage, batch)] == copied
    assert await stage.sql("select name from rota.signals where run = %s order by 1", forked) == (
        heard_of
    )
    assert await stage.sql("select forked_from from rota.jobs where id = %s", forked) == [run]


async def test_fork_copies_entries_unchanged(stage: Stage) -> None:
    run = await complete_run_with_journal(stage)
    forked = await fork(stage, run, "c")
    same = (
        "select kind, name, number, position, main_branch, branch_key, open, tries, at, seconds,"
        " wake_at, result::text,"
        " error::text from rota.steps where job = %s and name <> 'c' order by position"
    )

    assert await stage.sql(same, forked) == await stage.sql(same, run)


async def test_fork_has_original_or_given_arguments(stage: Stage) -> None:
    run = await complete_run_with_journal(stage)
    await fork(stage, run, "b")
    await fork(stage, run, "b", '{"n": 9}')

    assert [each.args for each in (await claim_queued(stage)).members] == ["{}", '{"n": 9}']


async def test_fork_leaves_the_original_run_unchanged(stage: Stage) -> None:
    run = await complete_run_with_journal(stage)
    about = "select each::text from rota.{} as each where {} = %s order by 1"
    tables = [("steps", "job"), ("signals", "run"), ("jobs", "id"), ("outcomes", "job")]
    before = [await stage.sql(about.format(*each), run) for each in tables]

    await fork(stage, run, "b", '{"n": 9}')

    assert [await stage.sql(about.format(*each), run) for each in tables] == before


@pytest.mark.parametrize("name", ["now", "nothing", ""])
async def test_fork_from_unknown_step_or_run_changes_nothing(stage: Stage, name: str) -> None:
    run = await complete_run_with_journal(stage)
    before = await stage.everything()

    assert await fork(stage, run, name) is None
    assert await fork(stage, 10**9, "a") is None
    assert await stage.everything() == before


async def test_fork_of_single_flow_job_is_refused(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": []})
    batch = await flows.claim(stage, await stage.worker())
    await record_entries(stage, batch, step("s"))

    assert await fork(stage, laid["a"], "s") is None


async def test_fork_beside_open_wait_receives_only_its_own_signal(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"), step("a", position=2))
    forked = await fork(stage, batch.jobs[0], "a")
    assert forked is not None
    new = await claim_queued(stage)
    await suspend_job(stage, new, wait("go"), kept=[])

    await send_signal(stage, batch.jobs[0])
    assert await stage.place(forked) == "sleeping"
    await send_signal(stage, forked)
    assert await stage.place(forked) == "queued"


async def test_prune_during_fork_leaves_the_fork_complete(stage: Stage) -> None:
    run = await complete_run_with_journal(stage)
    past = OldRuns(stage)
    await stage.sql("update rota.outcomes set at = at - interval '8 days'")
    await stage.sql("update rota.jobs set created = created - interval '8 days'")
    forking = await stage.connect()

    async with forking.transaction():
        [(forked, _)] = await stage.run(runs.fork_job(run, "b", None), forking)
        async with asyncio.timeout(60):
            await past.prune("7d")

    assert len(await stage.sql("select from rota.steps where job = %s", forked)) == 4
    await past.prune("7d")
    assert await past.mentions(run) == {}
