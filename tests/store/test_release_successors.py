"""Release of successors: when a job ends, each successor is updated once, also if other jobs end
meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.store import runs
from support import flows
from support.flows import DIAMOND, claim_only, end, is_free, outcomes, run_one, start
from support.stage import Stage

# One session


async def test_successor_is_queued_when_its_last_predecessor_ends(stage: Stage) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()

    await run_one(stage, worker, "a")
    assert (await flows.waiting(stage))[run["d"]] == (2, 0, 0, 0)
    await run_one(stage, worker, "b")
    assert await stage.place(run["d"]) == "waiting"
    moved = await run_one(stage, worker, "c")

    assert await stage.place(run["d"]) == "queued"
    assert (moved.queues, moved.runs, moved.pending) == (["default"], [], False)


async def test_run_ends_with_its_last_job(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": []}), await stage.worker()

    assert (await run_one(stage, worker, "a")).runs == []
    assert (await run_one(stage, worker, "b")).runs == [run.run]

    assert await outcomes(stage, run) == {"a": "succeeded", "b": "succeeded", "run": "succeeded"}
    assert await flows.waiting(stage) == {}


async def test_predecessors_ending_in_one_batch_are_all_counted(stage: Stage) -> None:
    parents = [f"p{number}" for number in range(20)]
    run = await start(stage, {**dict.fromkeys(parents, ()), "all": parents})
    batch = await flows.claim(stage, await stage.worker())

    await end(stage, batch)

    assert await stage.place(run["all"]) == "queued"


async def test_failed_job_marks_open_run_as_failing(stage: Stage) -> None:
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


async def test_intentional_skip_has_no_error_and_run_succeeds(stage: Stage) -> None:
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


async def test_jobs_without_flow_release_no_successors(stage: Stage) -> None:
    batch = await stage.held(2)

    moved = await end(stage, batch, given=batch.jobs[:1])
    failed = await end(stage, batch, "failed", given=batch.jobs[1:])

    assert (moved.queues, moved.runs, failed.queues, failed.runs) == ([], [], [], [])


async def test_failure_skips_chain_of_thousand_in_one_statement(stage: Stage) -> None:
    names = [f"n{number}" for number in range(1000)]
    run = await start(
        stage, {name: names[at - 1 : at] if at else [] for at, name in enumerate(names)}
    )
    worker = await stage.worker()

    moved = await run_one(stage, worker, "n0", "failed")

    assert moved.runs == [run.run]
    assert await stage.sql(
        "select state::text, count(*) from rota.outcomes group by 1 order by 2"
    ) == [
        ("failed", 2),
        ("skipped", 999),
    ]


async def test_failure_skips_ten_thousand_successors_in_one_statement(stage: Stage) -> None:
    names = [f"n{number}" for number in range(9_999)]
    run = await start(stage, {"first": (), **dict.fromkeys(names, ("first",))})
    worker = await stage.worker()

    moved = await run_one(stage, worker, "first", "failed")

    assert moved.runs == [run.run]


# Two sessions


async def test_concurrent_last_predecessors_queue_the_successor(
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


async def test_locked_successor_row_becomes_a_pending_release(
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

    settled = await flows.release_all_pending(stage)
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


async def test_release_pending_concurrently_releases_each_end_once(stage: Stage) -> None:
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
    await asyncio.gather(*(flows.release_all_pending(stage, on=each) for each in sessions))

    assert await stage.sql("select job from rota.pending_releases") == []
    assert (await outcomes(stage, run))["run"] == "failed"


async def test_child_flow_end_with_locked_row_becomes_pending_release(stage: Stage) -> None:
    """A pending release may be that of a run, for which the run of the calls waits."""
    held = await stage.held(1)
    parts = [flows.run_of({name: []}, part_of=1) for name in ("x", "y")]
    whole, one, _ = await flows.start_child_runs(stage, held, 0, parts)
    other = await stage.connect()

    async with other.transaction():
        await stage.sql("select from rota.waiting where job = %s for update", whole.run, on=other)
        moved = await run_one(stage, held.worker, "x")
    assert (moved.pending, moved.runs) == (True, [one.run])
    assert await stage.sql("select job from rota.pending_releases") == [one.run]

    await flows.release_all_pending(stage)
    assert (await flows.waiting(stage))[whole.run] == (1, 0, 0, 0)
    assert (await run_one(stage, held.worker, "y")).runs[-1] == whole.run


async def test_waiting_rows_are_locked_by_rising_id(stage: Stage) -> None:
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


async def test_claims_are_locked_before_waiting_rows(stage: Stage) -> None:
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


async def test_outcome_batch_with_cancel_request_takes_locks_in_order(stage: Stage) -> None:
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
    await flows.release_all_pending(stage)

    assert (await outcomes(stage, run))["run"] == "failed"


# Jobs that are no longer held


async def test_job_no_longer_held_releases_no_successors(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    await stage.give_back(batch)
    before = await stage.everything()

    moved = await end(stage, batch)
    failed = await end(stage, batch, "failed")

    assert (moved.jobs, moved.queues, failed.jobs, failed.queues) == (batch.jobs, [], [], [])
    assert await stage.everything() == before
    assert await stage.place(run["b"]) == "waiting"


async def test_complete_sent_twice_releases_successors_once(stage: Stage) -> None:
    run = await start(stage, {"a": [], "b": [], "c": ["a", "b"]})
    worker = await stage.worker()
    batch = await claim_only(stage, worker, "a")

    await end(stage, batch)
    await end(stage, batch)

    assert (await flows.waiting(stage))[run["c"]] == (1, 0, 0, 0)


async def test_returned_or_retried_job_with_cancel_skips_successors(stage: Stage) -> None:
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


async def test_retried_job_keeps_successors_waiting(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")

    await stage.retry(batch)

    assert await outcomes(stage, run) == {"a": "sleeping", "b": "waiting", "run": "running"}
    assert (await flows.waiting(stage))[run["b"]] == (1, 0, 0, 0)
