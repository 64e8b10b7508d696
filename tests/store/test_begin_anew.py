"""Restart of a run without its journal, and a fork from a step."""

from __future__ import annotations

import asyncio

import pytest

from rota.model.journal import JournalEntry
from rota.store import runs, steps
from rota.store.jobs import MoveResult

from . import flows
from .durably import (
    again,
    asleep,
    begin_anew,
    heard,
    keep,
    known,
    lie_down,
    missed,
    said,
    say,
    sleep,
    step,
    wait,
)
from .losses import NOTHING, bury, die, put_in_ready, reap, suspect
from .past import Past
from .stage import Batch, Stage

# Restart of the same run


async def test_it_begins_with_other_arguments_and_nothing_of_what_it_came_to(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, step("a"), sleep(5, position=2), step("b", position=3))
    await stage.sql("insert into rota.checkpoints (job, state) values (%s, '1')", batch.jobs[0])

    moved = await begin_anew(stage, batch, '{"n": 7}')

    assert moved == MoveResult(batch.jobs, ["default"], [], False)
    assert await stage.held_by(batch.id) == []
    new = await again(stage)
    assert new.jobs == batch.jobs
    [member] = new.members
    assert (member.args, member.attempt, member.has_steps, member.checkpoint) == (
        '{"n": 7}',
        1,
        None,
        None,
    )
    assert await known(stage, new) == []


@pytest.mark.parametrize("mark", [3, -4])
async def test_it_begins_at_its_first_attempt_and_is_no_suspect(stage: Stage, mark: int) -> None:
    await put_in_ready(stage, mark, attempt=3)
    worker = await stage.worker()
    batch = await suspect(stage, worker) if mark < 0 else await stage.claim(worker)

    await begin_anew(stage, batch)

    assert await stage.sql("select attempt, lost from rota.queued") == [(1, 0)]


async def test_it_queues_behind_the_others(stage: Stage) -> None:
    batch = await stage.held(1)
    others = await stage.start_several(2)

    await begin_anew(stage, batch)

    assert (await again(stage)).jobs == [*others, *batch.jobs]


async def test_neighbours_keep_what_they_came_to(stage: Stage) -> None:
    batch = await stage.held(2)
    first, second = batch.members
    await stage.run(steps.record(batch.worker, [(first, step("a")), (second, step("b"))]))
    await say(stage, second.job)

    await begin_anew(stage, batch)

    assert await stage.sql("select job, name from rota.steps") == [(second.job, "b")]
    assert await said(stage, second.job) == "1"
    assert await stage.held_by(batch.id) == [second.job]


async def test_signals_it_has_heard_are_gone_and_others_are_not(stage: Stage) -> None:
    batch = await stage.held(1)
    run = batch.jobs[0]
    for name in ("heard", "unheard", "late", "waited for"):
        await say(stage, run, name)
    await keep(stage, batch, heard("heard"), missed("late"), wait("waited for", position=3))

    await begin_anew(stage, batch)

    assert await stage.sql("select name from rota.signals order by name") == [
        "late",
        "unheard",
        "waited for",
    ]
    assert await say(stage, run, "heard", '"news"') == "sent"
    assert await say(stage, run, "unheard", '"news"') == "known"


async def test_the_next_life_waits_for_the_next_signal(stage: Stage) -> None:
    batch = await asleep(stage, wait("next"))
    await say(stage, batch.jobs[0], "next", '"one"')
    batch = await again(stage)
    await keep(stage, batch, heard("next", '"one"'))
    await begin_anew(stage, batch)
    batch = await again(stage)

    await lie_down(stage, batch, wait("next"))

    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await say(stage, batch.jobs[0], "next", '"two"') == "sent"
    assert [each.payload for each in await known(stage, await again(stage))] == ['"two"']


async def test_a_job_of_a_flow_leaves_the_run_its_signals(stage: Stage) -> None:
    """Other jobs of the run may still wait for them."""
    laid = await flows.start(stage, {"a": [], "b": []})
    await say(stage, laid.run)
    batch = await flows.claim_only(stage, await stage.worker(), "a")
    await keep(stage, batch, heard("go"))

    await begin_anew(stage, batch)

    assert await said(stage, laid.run) == "1"
    assert await stage.place(laid["a"]) == "queued"


async def test_calls_it_has_made_are_those_of_another_life(stage: Stage) -> None:
    caller = await stage.held(1)
    [first] = await flows.call(stage, caller, 1)

    await begin_anew(stage, caller)

    caller = await again(stage)
    [second] = await flows.call(stage, caller, 1)
    assert second.run != first.run
    assert second.created


async def test_one_that_somebody_wished_to_cancel_is_cancelled_instead(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, step("a"))
    await flows.cancel(stage, batch.jobs[0])

    assert (await begin_anew(stage, batch)).jobs == batch.jobs

    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert await stage.sql("select name from rota.steps") == ["a"]
    assert await stage.sql("select * from rota.cancels") == []


async def test_who_has_lost_the_job_cannot_begin_it_anew(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, step("a"), heard("go", position=2))
    await say(stage, batch.jobs[0])
    await die(stage, batch)
    taken = await suspect(stage, await stage.worker())
    before = await stage.everything()

    assert await begin_anew(stage, batch) == NOTHING
    mixed = Batch(taken.worker, batch.id, batch.jobs, batch.members)
    assert await begin_anew(stage, mixed) == NOTHING
    assert await stage.everything() == before


async def test_one_that_meets_the_reaper_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, step("a"))
    await bury(stage, batch.worker)
    reaping = await stage.connect(engine=True)

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        beginning = stage.meanwhile(begin_anew(stage, batch))
        await stage.waits(stage.engine, reaping)

    assert await beginning == NOTHING
    assert await stage.sql("select name from rota.steps") == ["a"]


async def test_beginning_anew_twice_because_the_answer_was_lost_is_beginning_once(
    stage: Stage,
) -> None:
    batch = await stage.held(1)
    await begin_anew(stage, batch)
    new = await again(stage)
    await keep(stage, new, step("a"))

    assert await begin_anew(stage, batch) == NOTHING
    assert await stage.sql("select name from rota.steps") == ["a"]


# Fork from a step


async def lived(stage: Stage) -> int:
    """Complete a run that has a value, steps, a sleep and waits in its journal."""
    batch = await stage.held(1)
    run = batch.jobs[0]
    await say(stage, run, "go", '"yes"')
    await say(stage, run, "later", '"no"')
    now = JournalEntry("value", "now", 1, 1, in_main_branch=True, result='"then"')
    await keep(stage, batch, now, step("a", position=2), heard("go", '"yes"', 3))
    await keep(stage, batch, sleep(-1, position=4), step("b", position=5), step("b", 2, 6))
    await keep(stage, batch, heard("later", '"no"', 7), step("c", position=8))
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
async def test_what_came_before_a_step_is_copied(
    stage: Stage, name: str, copied: list[str], heard_of: list[str]
) -> None:
    run = await lived(stage)

    forked = await fork(stage, run, name)

    batch = await again(stage)
    assert batch.jobs == [forked]
    assert [each.name for each in await known(stage, batch)] == copied
    assert await stage.sql("select name from rota.signals where run = %s order by 1", forked) == (
        heard_of
    )
    assert await stage.sql("select forked_from from rota.jobs where id = %s", forked) == [run]


async def test_what_is_copied_is_as_it_was(stage: Stage) -> None:
    run = await lived(stage)
    forked = await fork(stage, run, "c")
    same = (
        "select kind, name, number, position, main_branch, branch_key, open, tries, at, seconds,"
        " wake_at, result::text,"
        " error::text from rota.steps where job = %s and name <> 'c' order by position"
    )

    assert await stage.sql(same, forked) == await stage.sql(same, run)


async def test_it_has_the_arguments_it_had_or_those_it_is_given(stage: Stage) -> None:
    run = await lived(stage)
    await fork(stage, run, "b")
    await fork(stage, run, "b", '{"n": 9}')

    assert [each.args for each in (await again(stage)).members] == ["{}", '{"n": 9}']


async def test_what_was_forked_stays_as_it_is(stage: Stage) -> None:
    run = await lived(stage)
    about = "select each::text from rota.{} as each where {} = %s order by 1"
    tables = [("steps", "job"), ("signals", "run"), ("jobs", "id"), ("outcomes", "job")]
    before = [await stage.sql(about.format(*each), run) for each in tables]

    await fork(stage, run, "b", '{"n": 9}')

    assert [await stage.sql(about.format(*each), run) for each in tables] == before


@pytest.mark.parametrize("name", ["now", "nothing", ""])
async def test_there_may_be_no_such_step(stage: Stage, name: str) -> None:
    run = await lived(stage)
    before = await stage.everything()

    assert await fork(stage, run, name) is None
    assert await fork(stage, 10**9, "a") is None
    assert await stage.everything() == before


async def test_a_job_of_a_flow_is_not_forked_by_itself(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": []})
    batch = await flows.claim(stage, await stage.worker())
    await keep(stage, batch, step("s"))

    assert await fork(stage, laid["a"], "s") is None


async def test_one_forked_beside_an_open_wait_waits_for_its_own_signal(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"), step("a", position=2))
    forked = await fork(stage, batch.jobs[0], "a")
    assert forked is not None
    new = await again(stage)
    await lie_down(stage, new, wait("go"), kept=[])

    await say(stage, batch.jobs[0])
    assert await stage.place(forked) == "sleeping"
    await say(stage, forked)
    assert await stage.place(forked) == "queued"


async def test_one_that_is_being_forked_is_not_removed_meanwhile(stage: Stage) -> None:
    run = await lived(stage)
    past = Past(stage)
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
