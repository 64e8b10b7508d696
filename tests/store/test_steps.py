"""Journal of a job: each entry is written once, under the fence, and given to the next attempt."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.model.journal import JournalEntry
from rota.store import steps
from rota.store.steps import ProgressUpdate, UnwrittenEntry
from support import flows
from support.journals import (
    claim_queued,
    quarantine,
    read_journal,
    received_wait,
    record_entries,
    send_signal,
    sleep,
    step,
    timed_out_wait,
    wait,
)
from support.lost_workers import declare_dead, lose_worker, reap, split, suspect
from support.old_runs import OldRuns
from support.stage import Batch, Stage

ODD = [
    'quo"te',
    "back\\slash",
    "comma, {brace} [bracket]",
    "NULL",
    "null",
    "two\nlines\ttab",
    "percent %s %(run)s $1",
    " leading and trailing ",
    "grüße, 世界 🌍",
    "x" * 200,
]


async def table(stage: Stage) -> list[Any]:
    return await stage.sql("select name, result::text from rota.steps order by job, position")


# Written and read


async def test_journal_entries_are_read_in_position_order(stage: Stage) -> None:
    batch = await stage.held(1)
    assert await record_entries(stage, batch, step("b", result='"two"', position=2)) == []
    assert await record_entries(stage, batch, step("a"), step("b", 2, 3, result="null")) == []

    found = await read_journal(stage, batch)

    assert [(each.name, each.number, each.position, each.result) for each in found] == [
        ("a", 1, 1, "1"),
        ("b", 1, 2, '"two"'),
        ("b", 2, 3, "null"),
    ]


async def test_journal_entry_is_read_with_all_fields(stage: Stage) -> None:
    batch = await stage.held(1)
    failed = JournalEntry(
        "step", "f", 1, 4, in_main_branch=False, tries=3, duration=1.5, error='{"type":"E"}'
    )
    failed.branch_key = "2.1"
    await record_entries(
        stage, batch, failed, JournalEntry("value", "now", 1, 5, in_main_branch=True, result='"x"')
    )

    first, second = await read_journal(stage, batch)

    assert (first.kind, first.in_main_branch, first.is_open, first.tries) == (
        "step",
        False,
        False,
        3,
    )
    assert (first.remaining, first.result, first.error, first.has_signal) == (
        None,
        None,
        '{"type":"E"}',
        False,
    )
    assert (second.kind, second.result, second.error) == ("value", '"x"', None)
    assert (first.branch_key, second.branch_key) == ("2.1", "")
    assert await stage.sql("select seconds from rota.steps where name = 'f'") == [1.5]


@pytest.mark.parametrize("name", ODD)
async def test_journal_unusual_name_and_result_round_trip(stage: Stage, name: str) -> None:
    batch = await stage.held(1)
    result = '{"a":"\\"\\\\ \\u0000 , {}","b":[null,"NULL"]}'
    await record_entries(stage, batch, step(name, result=result), wait(name, position=2))
    await send_signal(stage, batch.jobs[0], name, result)

    done, waiting = await read_journal(stage, batch)

    assert (done.name, done.result) == (name, result)
    assert (waiting.name, waiting.payload) == (name, result)


async def test_journal_same_name_differs_by_kind_and_number(stage: Stage) -> None:
    batch = await stage.held(1)
    entries = [
        step("a"),
        step("a", 2, 2),
        received_wait("a", position=3),
        JournalEntry("version", "a", 1, 4, in_main_branch=True, result="true"),
    ]

    assert await record_entries(stage, batch, *entries) == []

    assert len(await read_journal(stage, batch)) == 4


async def test_journal_of_each_job_is_read_separately(stage: Stage) -> None:
    batch = await stage.held(3)
    a, b, _ = batch.members
    await stage.run(steps.record(batch.worker, [(a, step("a")), (b, step("b"))]))
    await stage.give_back(batch)

    new = await claim_queued(stage)

    assert {each.job: bool(each.has_steps) for each in new.members} == {
        **dict.fromkeys(batch.jobs[:2], True),
        batch.jobs[2]: False,
    }
    found = await stage.run(steps.read(new.members))
    assert [(each.job, each.entry.name) for each in found] == [(a.job, "a"), (b.job, "b")]


async def test_journal_survives_return_loss_quarantine_and_retry(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, step("a"))
    await stage.give_back(batch)
    batch = await claim_queued(stage)
    await lose_worker(stage, batch)
    batch = await suspect(stage, await stage.worker())
    await record_entries(stage, batch, step("b", position=2))
    await quarantine(stage, batch)
    await stage.sql("select rota.release(%s)", batch.jobs[0])
    batch = await claim_queued(stage)
    await stage.finish(batch, "failed")
    await stage.sql("select rota.retry(%s)", batch.jobs[0])

    batch = await claim_queued(stage)

    assert batch.members[0].has_steps
    assert [each.name for each in await read_journal(stage, batch)] == ["a", "b"]


# Once


async def test_journal_first_write_of_a_step_is_kept(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, step("a", result='"first"'))
    before = await stage.everything()

    answer = await record_entries(stage, batch, step("a", result='"second"', position=9))

    assert answer == [UnwrittenEntry(1, is_held=True)]
    assert await stage.everything() == before


async def test_journal_open_step_is_updated_until_finished(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(
        stage, batch, step("a", is_open=True, tries=1, seconds=60, result=None, error='{"n":1}')
    )
    # Another failed try, then a success.
    assert (
        await record_entries(
            stage, batch, step("a", is_open=True, tries=2, seconds=90, result=None, error='{"n":2}')
        )
        == []
    )
    [found] = await read_journal(stage, batch)
    assert found.is_open
    assert found.remaining is not None
    assert (found.tries, 85 < found.remaining <= 90, found.error) == (2, True, '{"n":2}')

    assert await record_entries(stage, batch, step("a", tries=3, result='"done"')) == []
    assert await record_entries(stage, batch, step("a", tries=4, result='"late"')) == [
        UnwrittenEntry(1, True)
    ]

    [found] = await read_journal(stage, batch)
    assert (found.is_open, found.tries, found.result, found.error) == (False, 3, '"done"', None)


async def test_journal_finished_wait_keeps_its_deadline(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, wait("go", seconds=60))
    until = await stage.one("select wake_at from rota.steps")

    await record_entries(stage, batch, received_wait("go"))

    assert await stage.one("select wake_at from rota.steps") == until


async def test_journal_entry_keeps_its_first_position(stage: Stage) -> None:
    """A changed order of steps is how replay detects changed code."""
    batch = await stage.held(1)
    await record_entries(stage, batch, wait("go", position=3))

    await record_entries(
        stage, batch, JournalEntry("wait", "go", 1, 7, in_main_branch=False, result="1")
    )

    assert await stage.sql("select position, main_branch from rota.steps") == [(3, True)]


async def test_record_returns_unwritten_entries_with_reason(stage: Stage) -> None:
    batch, lost = await stage.held(2), await stage.held(1)
    a, b = batch.members
    await record_entries(stage, batch, step("old", result='"stands"'))
    await stage.give_back(lost)
    entries = [
        (a, step("new")),
        (lost.members[0], step("stolen")),
        (a, step("old", position=2)),
        (b, step("old", result='"mine"')),
    ]
    query = steps.record(batch.worker, entries)

    answer = await stage.run(query)

    assert sorted(answer, key=lambda each: each.index) == [
        UnwrittenEntry(2, False),
        UnwrittenEntry(3, True),
    ]
    assert sorted(await table(stage)) == [("new", "1"), ("old", '"mine"'), ("old", '"stands"')]


async def test_record_repeated_after_lost_answer_changes_nothing(stage: Stage) -> None:
    batch = await stage.held(1)
    entries = [step("a"), JournalEntry("value", "uuid", 1, 2, in_main_branch=True, result='"u"')]
    await record_entries(stage, batch, *entries)
    before = await stage.everything()

    assert await record_entries(stage, batch, *entries) == [
        UnwrittenEntry(1, True),
        UnwrittenEntry(2, True),
    ]
    assert await stage.everything() == before


# Times


async def test_journal_sleep_ends_by_the_database_clock(stage: Stage) -> None:
    batch = await stage.held(1)
    then = datetime(2033, 5, 1, tzinfo=UTC).isoformat()
    await record_entries(
        stage,
        batch,
        sleep(30),
        JournalEntry("sleep", "sleep", 2, 2, in_main_branch=True, until=then),
    )

    found = await stage.sql(
        "select wake_at - at = '30 s', wake_at = %s::timestamptz from rota.steps order by number",
        then,
    )

    assert found == [(True, False), (False, True)]


async def test_journal_signal_payload_is_read_only_for_open_waits(stage: Stage) -> None:
    batch = await stage.held(1)
    entries = [
        wait("go"),
        wait("stop", position=2),
        received_wait("done", "7", 3),
        step("go", position=4),
    ]
    await record_entries(stage, batch, *entries, timed_out_wait("late"))
    for name in ("go", "done", "late"):
        await send_signal(stage, batch.jobs[0], name, f'"{name}!"')

    found = {(each.kind, each.name): each for each in await read_journal(stage, batch)}

    assert [key for key, each in found.items() if each.has_signal] == [("wait", "go")]
    assert found["wait", "go"].payload == '"go!"'
    assert found["wait", "stop"].payload is None
    assert found["wait", "done"].result == "7"


async def test_journal_signal_to_run_is_read_by_each_job(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": []})
    other = await flows.start(stage, {"a": []})
    batch = await flows.claim(stage, await stage.worker())
    entries = [(each, wait("go")) for each in batch.members]
    await stage.run(steps.record(batch.worker, entries))
    await send_signal(stage, laid.run, "go", '"all"')

    found = await stage.run(steps.read(batch.members))

    assert {each.job: each.entry.payload for each in found} == {
        laid["a"]: '"all"',
        laid["b"]: '"all"',
        other["a"]: None,
    }


# Fences


async def test_record_by_former_holder_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, step("a", is_open=True, result=None))
    await lose_worker(stage, batch)
    taken = await suspect(stage, await stage.worker())

    assert await record_entries(stage, batch, step("a"), step("b", position=2)) == [
        UnwrittenEntry(1, False),
        UnwrittenEntry(2, False),
    ]
    mixed = Batch(taken.worker, batch.id, batch.jobs, batch.members)
    assert await record_entries(stage, mixed, step("a")) == [UnwrittenEntry(1, False)]
    assert await table(stage) == [("a", None)]

    taken.members[0].claim = taken.id
    assert await record_entries(stage, taken, step("a", result='"theirs"')) == []


async def test_record_racing_with_reap_is_first_or_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await declare_dead(stage, batch.worker)
    reaping, keeping = await stage.connect(engine=True), await stage.connect(engine=True)

    async with keeping.transaction():
        assert await record_entries(stage, batch, step("first"), on=keeping) == []
        async with asyncio.timeout(60):
            assert (await reap(stage, batch.id)).jobs == []
    async with reaping.transaction():
        assert (await reap(stage, batch.id, on=reaping)).jobs == batch.jobs
        late = stage.meanwhile(record_entries(stage, batch, step("late"), on=keeping))
        await stage.waits(keeping, reaping)

    assert await late == [UnwrittenEntry(1, False)]
    assert await table(stage) == [("first", "1")]


async def test_record_and_cancel_do_not_wait_for_each_other(stage: Stage) -> None:
    batch = await stage.held(1)
    keeping = await stage.connect(engine=True)

    async with keeping.transaction():
        await record_entries(stage, batch, step("a"), on=keeping)
        async with asyncio.timeout(60):
            assert await flows.cancel(stage, batch.jobs[0]) == "requested"
    async with stage.watch.transaction():
        await stage.sql("select from rota.claims for no key update")
        async with asyncio.timeout(60):
            assert await record_entries(stage, batch, step("b", position=2)) == []


async def test_record_does_not_block_other_jobs_of_the_batch(stage: Stage) -> None:
    batch = await stage.held(3)
    keeping = await stage.connect(engine=True)

    async with keeping.transaction():
        await record_entries(stage, batch, step("a"), on=keeping)
        async with asyncio.timeout(60):
            assert await stage.complete(batch, batch.jobs[1:2]) == []
            own = await split(stage, batch, batch.jobs[2])

    assert own.id
    assert await stage.held_by(batch.id) == batch.jobs[:1]


# Progress and logs


async def report_progress(stage: Stage, batch: Batch, done: float, note: str | None = None) -> None:
    told = [ProgressUpdate(batch.id, job, done, 10.0, note) for job in batch.jobs]
    await stage.run(steps.write_progress(told))


async def progress(stage: Stage) -> list[Any]:
    return await stage.sql("select job, done, total, note from rota.progress order by job")


async def test_progress_last_update_after_completion_is_kept(stage: Stage) -> None:
    batch = await stage.held(1)
    await report_progress(stage, batch, 1)
    await stage.complete(batch)
    await report_progress(stage, batch, 2, "done")

    assert await progress(stage) == [(batch.jobs[0], 2, 10, "done")]


async def test_progress_by_former_holder_is_ignored(stage: Stage) -> None:
    old = await stage.held(1)
    await report_progress(stage, old, 1)
    await stage.give_back(old)
    new = await claim_queued(stage)
    await report_progress(stage, new, 5)

    await report_progress(stage, old, 2)

    assert await progress(stage) == [(old.jobs[0], 5, 10, None)]


async def test_progress_and_logs_of_removed_run_are_not_written(stage: Stage) -> None:
    batch = await stage.held(1)
    await stage.complete(batch)
    await OldRuns(stage).prune("0s")

    await report_progress(stage, batch, 1)
    await stage.run(steps.write_logs([(batch.members[0], 0.0, "late")]))

    assert await progress(stage) == []
    assert await stage.sql("select * from rota.logs") == []


async def test_log_lines_keep_time_and_attempt(stage: Stage) -> None:
    batch = await stage.held(2)
    first, second = batch.members
    second.attempt = 3
    await stage.run(
        steps.write_logs([(first, 2.0, 'a "line"'), (second, 1.0, "b"), (first, 0.0, "")])
    )

    found = await stage.sql(
        "select job, attempt, message from rota.logs where at <= clock_timestamp() order by at"
    )

    assert found == [(first.job, 1, 'a "line"'), (second.job, 3, "b"), (first.job, 1, "")]
