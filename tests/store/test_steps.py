"""Journal of a job: each entry is written once, under the fence, and given to the next attempt."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.model.journal import JournalEntry
from rota.store import claims, steps
from rota.store.steps import ProgressUpdate, UnwrittenEntry

from . import flows
from .durably import again, heard, keep, known, missed, quarantine, say, sleep, step, wait
from .losses import bury, die, reap, split, suspect
from .past import Past
from .stage import Batch, Stage

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


async def test_what_was_kept_is_given_in_the_order_the_code_came_to_it(stage: Stage) -> None:
    batch = await stage.held(1)
    assert await keep(stage, batch, step("b", result='"two"', position=2)) == []
    assert await keep(stage, batch, step("a"), step("b", 2, 3, result="null")) == []

    found = await known(stage, batch)

    assert [(each.name, each.number, each.position, each.result) for each in found] == [
        ("a", 1, 1, "1"),
        ("b", 1, 2, '"two"'),
        ("b", 2, 3, "null"),
    ]


async def test_all_that_is_said_of_a_step_is_given_again(stage: Stage) -> None:
    batch = await stage.held(1)
    failed = JournalEntry(
        "step", "f", 1, 4, in_main_branch=False, tries=3, duration=1.5, error='{"type":"E"}'
    )
    failed.branch_key = "2.1"
    await keep(
        stage, batch, failed, JournalEntry("value", "now", 1, 5, in_main_branch=True, result='"x"')
    )

    first, second = await known(stage, batch)

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
async def test_any_name_and_any_result_comes_back_as_it_was(stage: Stage, name: str) -> None:
    batch = await stage.held(1)
    result = '{"a":"\\"\\\\ \\u0000 , {}","b":[null,"NULL"]}'
    await keep(stage, batch, step(name, result=result), wait(name, position=2))
    await say(stage, batch.jobs[0], name, result)

    done, waiting = await known(stage, batch)

    assert (done.name, done.result) == (name, result)
    assert (waiting.name, waiting.payload) == (name, result)


async def test_kinds_and_numbers_tell_steps_of_one_name_apart(stage: Stage) -> None:
    batch = await stage.held(1)
    entries = [
        step("a"),
        step("a", 2, 2),
        heard("a", position=3),
        JournalEntry("version", "a", 1, 4, in_main_branch=True, result="true"),
    ]

    assert await keep(stage, batch, *entries) == []

    assert len(await known(stage, batch)) == 4


async def test_each_job_is_given_its_own_and_only_those_that_have_begun_ask(stage: Stage) -> None:
    batch = await stage.held(3)
    a, b, _ = batch.members
    await stage.run(steps.record(batch.worker, [(a, step("a")), (b, step("b"))]))
    await stage.give_back(batch)

    new = await again(stage)

    assert {each.job: bool(each.has_steps) for each in new.members} == {
        **dict.fromkeys(batch.jobs[:2], True),
        batch.jobs[2]: False,
    }
    found = await stage.run(steps.read(new.members))
    assert [(each.job, each.entry.name) for each in found] == [(a.job, "a"), (b.job, "b")]


async def test_they_survive_being_handed_back_lost_put_away_and_retried(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, step("a"))
    await stage.give_back(batch)
    batch = await again(stage)
    await die(stage, batch)
    batch = await suspect(stage, await stage.worker())
    await keep(stage, batch, step("b", position=2))
    await quarantine(stage, batch)
    await stage.sql("select rota.release(%s)", batch.jobs[0])
    batch = await again(stage)
    await stage.finish(batch, "failed")
    await stage.sql("select rota.retry(%s)", batch.jobs[0])

    batch = await again(stage)

    assert batch.members[0].has_steps
    assert [each.name for each in await known(stage, batch)] == ["a", "b"]


# Once


async def test_the_first_write_of_a_step_stands(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, step("a", result='"first"'))
    before = await stage.everything()

    answer = await keep(stage, batch, step("a", result='"second"', position=9))

    assert answer == [UnwrittenEntry(1, is_held=True)]
    assert await stage.everything() == before


async def test_one_that_is_open_is_written_once_more_and_then_stands(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(
        stage, batch, step("a", is_open=True, tries=1, seconds=60, result=None, error='{"n":1}')
    )
    # Another failed try, then a success.
    assert (
        await keep(
            stage, batch, step("a", is_open=True, tries=2, seconds=90, result=None, error='{"n":2}')
        )
        == []
    )
    [found] = await known(stage, batch)
    assert found.is_open
    assert found.remaining is not None
    assert (found.tries, 85 < found.remaining <= 90, found.error) == (2, True, '{"n":2}')

    assert await keep(stage, batch, step("a", tries=3, result='"done"')) == []
    assert await keep(stage, batch, step("a", tries=4, result='"late"')) == [
        UnwrittenEntry(1, True)
    ]

    [found] = await known(stage, batch)
    assert (found.is_open, found.tries, found.result, found.error) == (False, 3, '"done"', None)


async def test_a_wait_that_is_over_still_says_until_when_it_was_for(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, wait("go", seconds=60))
    until = await stage.one("select wake_at from rota.steps")

    await keep(stage, batch, heard("go"))

    assert await stage.one("select wake_at from rota.steps") == until


async def test_where_it_was_written_first_is_where_it_stays(stage: Stage) -> None:
    """A changed order of steps is how replay detects changed code."""
    batch = await stage.held(1)
    await keep(stage, batch, wait("go", position=3))

    await keep(stage, batch, JournalEntry("wait", "go", 1, 7, in_main_branch=False, result="1"))

    assert await stage.sql("select position, main_branch from rota.steps") == [(3, True)]


async def test_of_many_the_answer_says_which_were_not_kept_and_why(stage: Stage) -> None:
    batch, lost = await stage.held(2), await stage.held(1)
    a, b = batch.members
    await keep(stage, batch, step("old", result='"stands"'))
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


async def test_a_write_made_twice_because_its_answer_was_lost_changes_nothing(stage: Stage) -> None:
    batch = await stage.held(1)
    entries = [step("a"), JournalEntry("value", "uuid", 1, 2, in_main_branch=True, result='"u"')]
    await keep(stage, batch, *entries)
    before = await stage.everything()

    assert await keep(stage, batch, *entries) == [UnwrittenEntry(1, True), UnwrittenEntry(2, True)]
    assert await stage.everything() == before


# Times


async def test_a_sleep_is_over_by_the_databases_clock(stage: Stage) -> None:
    batch = await stage.held(1)
    then = datetime(2033, 5, 1, tzinfo=UTC).isoformat()
    await keep(
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


async def test_what_was_said_is_told_of_waits_that_are_open_and_of_no_other(stage: Stage) -> None:
    batch = await stage.held(1)
    entries = [wait("go"), wait("stop", position=2), heard("done", "7", 3), step("go", position=4)]
    await keep(stage, batch, *entries, missed("late"))
    for name in ("go", "done", "late"):
        await say(stage, batch.jobs[0], name, f'"{name}!"')

    found = {(each.kind, each.name): each for each in await known(stage, batch)}

    assert [key for key, each in found.items() if each.has_signal] == [("wait", "go")]
    assert found["wait", "go"].payload == '"go!"'
    assert found["wait", "stop"].payload is None
    assert found["wait", "done"].result == "7"


async def test_what_was_said_to_a_run_is_told_to_each_of_its_jobs(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": []})
    other = await flows.start(stage, {"a": []})
    batch = await flows.claim(stage, await stage.worker())
    entries = [(each, wait("go")) for each in batch.members]
    await stage.run(steps.record(batch.worker, entries))
    await say(stage, laid.run, "go", '"all"')

    found = await stage.run(steps.read(batch.members))

    assert {each.job: each.entry.payload for each in found} == {
        laid["a"]: '"all"',
        laid["b"]: '"all"',
        other["a"]: None,
    }


# Fences


async def test_who_has_lost_the_job_keeps_nothing(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, step("a", is_open=True, result=None))
    await die(stage, batch)
    taken = await suspect(stage, await stage.worker())

    assert await keep(stage, batch, step("a"), step("b", position=2)) == [
        UnwrittenEntry(1, False),
        UnwrittenEntry(2, False),
    ]
    mixed = Batch(taken.worker, batch.id, batch.jobs, batch.members)
    assert await keep(stage, mixed, step("a")) == [UnwrittenEntry(1, False)]
    assert await table(stage) == [("a", None)]

    taken.members[0].claim = taken.id
    assert await keep(stage, taken, step("a", result='"theirs"')) == []


async def test_one_that_meets_the_reaper_is_refused_or_comes_first(stage: Stage) -> None:
    batch = await stage.held(1)
    await bury(stage, batch.worker)
    reaping, keeping = await stage.connect(engine=True), await stage.connect(engine=True)

    async with keeping.transaction():
        assert await keep(stage, batch, step("first"), on=keeping) == []
        async with asyncio.timeout(60):
            assert (await reap(stage, batch.id)).jobs == []
    async with reaping.transaction():
        assert (await reap(stage, batch.id, on=reaping)).jobs == batch.jobs
        late = stage.meanwhile(keep(stage, batch, step("late"), on=keeping))
        await stage.waits(keeping, reaping)

    assert await late == [UnwrittenEntry(1, False)]
    assert await table(stage) == [("first", "1")]


async def test_one_that_meets_a_cancel_is_kept_and_neither_waits(stage: Stage) -> None:
    batch = await stage.held(1)
    keeping = await stage.connect(engine=True)

    async with keeping.transaction():
        await keep(stage, batch, step("a"), on=keeping)
        async with asyncio.timeout(60):
            assert await flows.cancel(stage, batch.jobs[0]) == "requested"
    async with stage.watch.transaction():
        await stage.sql("select from rota.claims for no key update")
        async with asyncio.timeout(60):
            assert await keep(stage, batch, step("b", position=2)) == []


async def test_keeping_steps_stops_no_neighbour_from_ending(stage: Stage) -> None:
    batch = await stage.held(3)
    keeping = await stage.connect(engine=True)

    async with keeping.transaction():
        await keep(stage, batch, step("a"), on=keeping)
        async with asyncio.timeout(60):
            assert await stage.complete(batch, batch.jobs[1:2]) == []
            await stage.together(
                claims.lock(batch.worker, [batch.id]),
                claims.release(batch.worker, [batch.id], []),
            )
            own = await split(stage, batch, batch.jobs[2])

    assert own.id
    assert await stage.held_by(batch.id) == batch.jobs[:1]


# Progress and logs


async def tell(stage: Stage, batch: Batch, done: float, note: str | None = None) -> None:
    told = [ProgressUpdate(batch.id, job, done, 10.0, note) for job in batch.jobs]
    await stage.run(steps.write_progress(told))


async def progress(stage: Stage) -> list[Any]:
    return await stage.sql("select job, done, total, note from rota.progress order by job")


async def test_of_progress_the_last_word_is_kept_also_of_a_job_that_has_left(stage: Stage) -> None:
    batch = await stage.held(1)
    await tell(stage, batch, 1)
    await stage.complete(batch)
    await tell(stage, batch, 2, "done")

    assert await progress(stage) == [(batch.jobs[0], 2, 10, "done")]


async def test_who_has_lost_the_job_says_no_more_how_far_it_is(stage: Stage) -> None:
    old = await stage.held(1)
    await tell(stage, old, 1)
    await stage.give_back(old)
    new = await again(stage)
    await tell(stage, new, 5)

    await tell(stage, old, 2)

    assert await progress(stage) == [(old.jobs[0], 5, 10, None)]


async def test_nothing_is_noted_of_a_run_that_is_gone(stage: Stage) -> None:
    batch = await stage.held(1)
    await stage.complete(batch)
    await Past(stage).prune("0s")

    await tell(stage, batch, 1)
    await stage.run(steps.write_logs([(batch.members[0], 0.0, "late")]))

    assert await progress(stage) == []
    assert await stage.sql("select * from rota.logs") == []


async def test_lines_are_kept_with_their_time_and_attempt(stage: Stage) -> None:
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
