"""Release of successors: when a job ends, each successor is updated once, also if other jobs end
meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rota.store import runs

from . import flows
from .flows import DIAMOND, claim_only, end, is_free, outcomes, run_one, start
from .stage import Stage

# One session


async def test_a_job_is_ready_when_the_last_of_its_parents_has_ended(stage: Stage) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()

    await run_one(stage, worker, "a")
    assert (await flows.waiting(stage))[run["d"]] == (2, 0, 0, 0)
    await run_one(stage, worker, "b")
    assert await stage.place(run["d"]) == "waiting"
    moved = await run_one(stage, worker, "c")

    assert await stage.place(run["d"]) == "queued"
    assert (moved.queues, moved.runs, moved.pending) == (["default"], [], False)


async def test_a_run_ends_with_the_last_of_its_jobs(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": []}), await stage.worker()

    assert (await run_one(stage, worker, "a")).runs == []
    assert (await run_one(stage, worker, "b")).runs == [run.run]

    assert await outcomes(stage, run) == {"a": "succeeded", "b": "succeeded", "run": "succeeded"}
    assert await flows.waiting(stage) == {}


async def test_parents_that_end_in_one_batch_are_all_counted(stage: Stage) -> None:
    parents = [f"p{number}" for number in range(20)]
    run = await start(stage, {**dict.fromkeys(parents, ()), "all": parents})
    batch = await flows.claim(stage, await stage.worker())

    await end(stage, batch)

    assert await stage.place(run["all"]) == "queued"


async def test_a_failure_is_news_of_the_run_before_the_run_is_over(stage: Stage) -> None:
    run = await start(stage, {"a": [], "b": [], "c": ["a"], "d": ["c"]})
    worker = await stage.worker()

    await run_one(stage, worker, "a", "failed")

    [ending] = await stage.run(runs.outcome([run.run]))
    assert (ending.state, ending.is_failing) == (None, True)
    assert await outcomes(stage, run) == {
        "a": "failed",
        "b": "queued",
        "c": "skipped",
        "d": "skipped",
        "run": "running",
    }
    assert await stage.one("select error->>'message' from rota.outcomes where job = %s", run["d"])


async def test_a_skip_on_purpose_has_no_error_and_harms_nobody(stage: Stage) -> None:
    run = await start(stage, {"a": [], "b": ["a"], "c": ["b"], "d": ["a"]}, {"d": "none_failed"})
    worker = await stage.worker()

    await run_one(stage, worker, "a", "skipped")
    await run_one(stage, worker, "d")

    assert await outcomes(stage, run) == {
        "a": "skipped",
        "b": "skipped",
        "c": "skipped",
        "d": "succeeded",
        "run": "succeeded",
    }
    assert await stage.sql("select job from rota.outcomes where error is not null") == []


async def test_what_jobs_do_alone_needs_no_passing_on(stage: Stage) -> None:
    batch = await stage.held(2)

    moved = await end(stage, batch, given=batch.jobs[:1])
    failed = await end(stage, batch, "failed", given=batch.jobs[1:])

    assert (moved.queues, moved.runs, failed.queues, failed.runs) == ([], [], [], [])


async def test_a_chain_of_a_thousand_is_skipped_in_one_go(stage: Stage) -> None:
    names = [f"n{number}" for number in range(1000)]
    run = await start(
        stage, {name: names[at - 1 : at] if at else [] for at, name in enumerate(names)}
    )
    worker = await stage.worker()

    began = time.perf_counter()
    moved = await run_one(stage, worker, "n0", "failed")
    took = time.perf_counter() - began

    assert moved.runs == [run.run]
    assert await stage.sql(
        "select state::text, count(*) from rota.outcomes group by 1 order by 2"
    ) == [
        ("failed", 2),
        ("skipped", 999),
    ]
    assert took < 3, f"it took {took:.1f} s"


async def test_ten_thousand_that_wait_for_one_are_skipped_in_one_go(stage: Stage) -> None:
    names = [f"n{number}" for number in range(9_999)]
    run = await start(stage, {"first": (), **dict.fromkeys(names, ("first",))})
    worker = await stage.worker()

    began = time.perf_counter()
    moved = await run_one(stage, worker, "first", "failed")
    took = time.perf_counter() - began

    assert moved.runs == [run.run]
    assert took < 3, f"it took {took:.1f} s"


# Two sessions


async def test_of_two_last_parents_that_end_together_the_second_sees_the_first(
    stage: Stage,
) -> None:
    run, worker = await start(stage, {"a": [], "b": [], "c": ["a", "b"]}), await stage.worker()
    one, two = await claim_only(stage, worker, "a"), await claim_only(stage, worker, "b")
    other = await stage.connect(engine=True)

    async with stage.engine.transaction():
        first = await end(stage, one)
        ending = stage.meanwhile(end(stage, two, on=other))
        await stage.waits(other, stage.engine)

    assert first.queues == []
    assert (await ending).queues == ["default"]
    assert await stage.place(run["c"]) == "queued"


async def test_what_a_later_round_cannot_lock_is_left_for_later_and_not_waited_for(
    stage: Stage,
) -> None:
    """a fails, so c is skipped, so d is next; another session has locked d's row."""
    run = await start(stage, {"a": [], "c": ["a"], "b": [], "d": ["c", "b"], "e": ["d"]})
    worker = await stage.worker()
    one, two = await claim_only(stage, worker, "a"), await claim_only(stage, worker, "b")
    other = await stage.connect(engine=True)

    async with stage.engine.transaction():
        await end(stage, two)
        moved = await end(stage, one, "failed", on=other)
        assert moved.pending
        assert await stage.sql("select job, kind::text from rota.pending_releases") == [
            (run["c"], "failed")
        ]
        await stage.check()

    settled = await flows.settle(stage)
    assert [each.runs for each in settled] == [[run.run]]
    assert await outcomes(stage, run) == {
        "a": "failed",
        "b": "succeeded",
        "c": "skipped",
        "d": "skipped",
        "e": "skipped",
        "run": "failed",
    }
    assert await stage.sql("select job from rota.pending_releases") == []


async def test_two_who_settle_at_once_pass_each_end_on_once(stage: Stage) -> None:
    many = 20
    graph: dict[str, list[str]] = {}
    for n in range(many):
        graph |= {f"a{n}": [], f"b{n}": [], f"c{n}": [f"a{n}"], f"d{n}": [f"c{n}", f"b{n}"]}
    run, worker = await start(stage, graph), await stage.worker()
    failing = await claim_only(stage, worker, *(f"a{n}" for n in range(many)))
    others = await claim_only(stage, worker, *(f"b{n}" for n in range(many)))
    second = await stage.connect(engine=True)
    async with stage.engine.transaction():
        await end(stage, others)
        await end(stage, failing, "failed", on=second)
    assert await stage.one("select count(*) from rota.pending_releases") == many

    sessions = [await stage.connect(engine=True) for _ in range(3)]
    await asyncio.gather(*(flows.settle(stage, on=each) for each in sessions))

    assert await stage.sql("select job from rota.pending_releases") == []
    assert (await outcomes(stage, run))["run"] == "failed"


async def test_the_end_of_a_flow_among_calls_is_passed_on_later_if_need_be(stage: Stage) -> None:
    """A pending release may be that of a run, for which the run of the calls waits."""
    held = await stage.held(1)
    parts = [flows.run_of({name: []}, part_of=1) for name in ("x", "y")]
    whole, one, _ = await flows.call(stage, held, 0, parts)
    other = await stage.connect()

    async with other.transaction():
        await stage.sql("select from rota.waiting where job = %s for update", whole.run, on=other)
        moved = await run_one(stage, held.worker, "x")
    assert (moved.pending, moved.runs) == (True, [one.run])
    assert await stage.sql("select job from rota.pending_releases") == [one.run]

    await flows.settle(stage)
    assert (await flows.waiting(stage))[whole.run] == (1, 0, 0, 0)
    assert (await run_one(stage, held.worker, "y")).runs[-1] == whole.run


async def test_rows_of_those_who_wait_are_locked_from_the_lowest_id_up(stage: Stage) -> None:
    """For any order of the batch and its successors: probed while a lock in the middle is held."""
    graph = {"a": [], "b": [], "c": [], "x": ["c"], "y": ["a"], "z": ["b"]}
    run, worker = await start(stage, graph), await stage.worker()
    batch = await claim_only(stage, worker, "b", "a", "c")
    holder = await stage.connect()
    await stage.sql("begin", on=holder)
    await stage.sql("select from rota.waiting where job = %s for update", run["y"], on=holder)

    for state in ("succeeded", "failed"):
        async with stage.engine.transaction(force_rollback=True):
            ending = stage.meanwhile(end(stage, batch, state))
            await stage.waits(stage.engine, holder)

            assert not await is_free(stage, run["x"])
            assert await is_free(stage, run["z"])
            if state == "failed":
                assert not await is_free(stage, run.run)

            await stage.sql("rollback", on=holder)
            await ending
        await stage.sql("begin", on=holder)
        await stage.sql("select from rota.waiting where job = %s for update", run["y"], on=holder)


async def test_claims_are_locked_before_those_who_wait(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    holder = await stage.connect()
    for state in ("succeeded", "failed"):
        async with holder.transaction():
            await stage.sql("select from rota.claims for update", on=holder)
            async with stage.engine.transaction(force_rollback=True):
                ending = stage.meanwhile(end(stage, batch, state))
                await stage.waits(stage.engine, holder)
                assert await is_free(stage, run["b"])
                ending.cancel()
                await asyncio.gather(ending, return_exceptions=True)


async def test_ends_and_wishes_recorded_together_take_their_locks_in_order(stage: Stage) -> None:
    """A batch with a failure and with a retry that has a cancel request, recorded as the engine does. The
    other batch ends the other predecessors of the same two jobs."""
    from rota.engine.worker.outcomes import FinishedAttempt, OutcomeBatch, transactions_for
    from rota.model.outcome import FinalOutcome, Retried

    graph = {"p": [], "q": [], "r": [], "s": [], "low": ["p", "q"], "high": ["r", "s"]}
    run, worker = await start(stage, graph), await stage.worker()
    mine = await claim_only(stage, worker, "p", "r")
    theirs = await claim_only(stage, worker, "q", "s")
    await stage.run(runs.cancel(run["p"]), stage.watch)
    other = await stage.connect(engine=True)
    by_job = {member.job: member for member in mine.members}
    batch = OutcomeBatch(
        [
            FinishedAttempt(by_job[run["r"]], FinalOutcome("failed", "{}"), 0.1),
            FinishedAttempt(by_job[run["p"]], Retried(60.0, "{}"), 0.1),
        ]
    )

    ending: Any = None
    for segment in transactions_for(worker, batch):
        async with stage.engine.transaction():
            for query in segment:
                await stage.run(query)
                if query.statement == "job/finish":
                    ending = stage.meanwhile(end(stage, theirs, on=other))
                    await stage.waits(other, stage.engine)
    await ending
    await flows.settle(stage)

    assert (await outcomes(stage, run))["run"] == "failed"


# Jobs that are no longer held


async def test_a_job_that_is_no_longer_held_passes_nothing_on(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    await stage.give_back(batch)
    before = await stage.everything()

    moved = await end(stage, batch)
    failed = await end(stage, batch, "failed")

    assert (moved.jobs, moved.queues, failed.jobs, failed.queues) == (batch.jobs, [], [], [])
    assert await stage.everything() == before
    assert await stage.place(run["b"]) == "waiting"


async def test_a_completion_that_is_sent_twice_is_passed_on_once(stage: Stage) -> None:
    run = await start(stage, {"a": [], "b": [], "c": ["a", "b"]})
    worker = await stage.worker()
    batch = await claim_only(stage, worker, "a")

    await end(stage, batch)
    await end(stage, batch)

    assert (await flows.waiting(stage))[run["c"]] == (1, 0, 0, 0)


async def test_a_job_put_back_by_wish_to_cancel_passes_that_on(stage: Stage) -> None:
    """A returned or retried job with a cancel request ends, and its successors are skipped."""
    for move in ("give back", "retry"):
        run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
        batch = await claim_only(stage, worker, "a")
        await stage.run(runs.cancel(run["a"]), stage.watch)

        await (stage.give_back(batch) if move == "give back" else stage.retry(batch))

        assert await outcomes(stage, run) == {
            "a": "cancelled",
            "b": "skipped",
            "run": "cancelled",
        }


async def test_a_job_tried_again_keeps_those_who_wait_waiting(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")

    await stage.retry(batch)

    assert await outcomes(stage, run) == {"a": "sleeping", "b": "waiting", "run": "running"}
    assert (await flows.waiting(stage))[run["b"]] == (1, 0, 0, 0)
