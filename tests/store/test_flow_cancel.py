"""Cancelling runs of many jobs: waiting jobs never start, running ones get a request, no job is left
over."""

from __future__ import annotations

import pytest
from psycopg.errors import SerializationFailure

from rota.store import claims, runs, timers
from support import flows
from support.flows import DIAMOND, cancel, claim_only, end, is_free, outcomes, run_one, start
from support.stage import Stage

# Jobs in any place


async def test_cancel_run_not_begun_ends_at_once(stage: Stage) -> None:
    run = await start(stage, DIAMOND)

    assert await cancel(stage, run.run) == "cancelled"

    assert await outcomes(stage, run) == dict.fromkeys([*DIAMOND, "run"], "cancelled")
    assert await stage.sql("select job from rota.cancels") == []
    assert await cancel(stage, run.run) == "cancelled"


async def test_cancel_run_cancels_sleeping_and_waiting_jobs(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": [], "c": ["a", "b"]}), await stage.worker()
    await stage.retry(await claim_only(stage, worker, "a"))

    assert await cancel(stage, run.run) == "cancelled"
    assert await outcomes(stage, run) == dict.fromkeys(["a", "b", "c", "run"], "cancelled")


async def test_cancel_run_keeps_outcomes_of_finished_jobs(stage: Stage) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()
    await run_one(stage, worker, "a")

    assert await cancel(stage, run.run) == "cancelled"
    assert await outcomes(stage, run) == {
        "a": "succeeded",
        **dict.fromkeys(["b", "c", "d", "run"], "cancelled"),
    }


async def test_cancel_run_with_running_job_ends_with_that_job(
    stage: Stage,
) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")

    assert await cancel(stage, run.run) == "requested"
    assert (await outcomes(stage, run))["run"] == "running", "one of its jobs still runs"

    await end(stage, batch, "cancelled")
    assert await outcomes(stage, run) == dict.fromkeys(["a", "b", "run"], "cancelled")


@pytest.mark.parametrize(
    ("end_of_a", "end_of_run"), [("succeeded", "cancelled"), ("failed", "cancelled")]
)
async def test_cancel_requested_run_with_cancelled_job_is_cancelled(
    stage: Stage, end_of_a: str, end_of_run: str
) -> None:
    run, worker = await start(stage, {"a": [], "b": []}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    assert await cancel(stage, run.run) == "requested"

    await end(stage, batch, end_of_a)

    assert await outcomes(stage, run) == {"a": end_of_a, "b": "cancelled", "run": end_of_run}


async def test_cancel_requested_run_succeeds_if_all_jobs_succeed(stage: Stage) -> None:
    run, worker = await start(stage, {"a": []}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    assert await cancel(stage, run.run) == "requested"

    await end(stage, batch)

    assert await outcomes(stage, run) == {"a": "succeeded", "run": "succeeded"}


@pytest.mark.parametrize("place", ["queued", "waiting", "sleeping", "running"])
async def test_cancel_flow_job_in_any_place_cancels_only_that_job(stage: Stage, place: str) -> None:
    run = await start(stage, {"a": [], "b": ["a"], "c": ["b"], "d": []}, {"c": "all_done"})
    worker = await stage.worker()
    batch = None
    if place != "waiting":
        await run_one(stage, worker, "a")
    if place in ("sleeping", "running"):
        batch = await claim_only(stage, worker, "b")
    if place == "sleeping" and batch:
        await stage.retry(batch)

    answer = await cancel(stage, run["b"])
    assert answer == ("requested" if place in ("running", "waiting") else "cancelled")
    if place == "running" and batch:
        await end(stage, batch, "cancelled")
    if place == "waiting":
        await run_one(stage, worker, "a")
    await run_one(stage, worker, "c")
    await run_one(stage, worker, "d")

    assert await outcomes(stage, run) == {
        "a": "succeeded",
        "b": "cancelled",
        "c": "succeeded",
        "d": "succeeded",
        "run": "cancelled",
    }


async def test_cancel_flow_job_skips_its_successors_by_rule(stage: Stage) -> None:
    run = await start(
        stage,
        {"a": [], "all": ["a"], "none": ["a"], "any": ["a"], "done": ["a"]},
        {"none": "none_failed", "any": "any_failed", "done": "all_done"},
    )

    await cancel(stage, run["a"])

    assert await outcomes(stage, run) == {
        "a": "cancelled",
        **dict.fromkeys(["all", "none", "any"], "skipped"),
        "done": "queued",
        "run": "running",
    }
    assert await stage.sql(
        "select distinct error->>'message' from rota.outcomes where claim is null "
        "and state = 'skipped'"
    ) == ["a job it waits for was cancelled"]


async def test_cancel_finished_run_changes_nothing(stage: Stage) -> None:
    run, worker = await start(stage, {"a": []}), await stage.worker()
    await run_one(stage, worker, "a", "failed")
    before = await stage.everything()

    assert await cancel(stage, run.run) == "failed"
    assert await cancel(stage, run["a"]) == "failed"
    assert await stage.everything() == before


async def test_cancel_job_cancels_its_child_runs(stage: Stage) -> None:
    """Calls are nested two levels deep, tasks and flows: waiting jobs end at once, running ones are
    requested to."""
    job, worker = await stage.start(), await stage.worker()
    held = await stage.claim(worker)
    started = await flows.start_child_runs(
        stage, held, 2, [flows.run_of({"x": [], "y": ["x"]}, part_of=1)]
    )
    whole, part = (each.run for each in started)
    inner = await claim_only(stage, worker, "call0")
    [deeper] = await flows.start_child_runs(stage, inner, 3)
    running = await claim_only(stage, worker, "x")

    assert await cancel(stage, job) == "requested"

    assert sorted(await stage.unwanted(worker)) == sorted([job, *inner.jobs, *running.jobs])
    assert await stage.sql(
        "select count(*) from rota.outcomes where state = 'cancelled' and job in "
        "(select unnest(jobs) from rota.runs where id = %s)",
        deeper.run,
    ) == [3]
    await end(stage, running, "cancelled")
    await end(stage, inner, "cancelled")
    await flows.release_all_pending(stage)
    assert await stage.sql(
        "select job, state::text from rota.outcomes where job = any(%s) order by 1",
        [whole, part, deeper.run],
    ) == [(each, "cancelled") for each in sorted([whole, part, deeper.run])]


# Two sessions that meet


async def test_cancel_run_twice_concurrently_both_return_cancelled(stage: Stage) -> None:
    run = await start(stage, DIAMOND)
    first, second = await stage.connect(), await stage.connect()

    async with first.transaction():
        assert await cancel(stage, run.run, first) == "cancelled"
        waiting = stage.meanwhile(cancel(stage, run.run, second))
        await stage.waits(second, first)

    assert await waiting == "cancelled"
    assert await stage.sql("select job from rota.cancels") == []


async def test_cancel_run_and_its_job_concurrently_both_return_cancelled(stage: Stage) -> None:
    for mine, theirs in (("run", "a"), ("a", "run")):
        run = await start(stage, DIAMOND)
        ids = {"run": run.run, **run.jobs}
        first, second = await stage.connect(), await stage.connect()

        async with first.transaction():
            assert await cancel(stage, ids[mine], first) == "cancelled"
            waiting = stage.meanwhile(cancel(stage, ids[theirs], second))
            await stage.waits(second, first)

        assert await waiting == "cancelled"
        assert (await outcomes(stage, run))["run"] == "cancelled"


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
async def test_cancel_run_while_job_ends_keeps_the_job_outcome(stage: Stage, state: str) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    canceller = await stage.connect()

    async with stage.engine.transaction():
        await end(stage, batch, state)
        cancelling = stage.meanwhile(cancel(stage, run.run, canceller))
        await stage.waits(canceller, stage.engine)

    answer = await cancelling
    await flows.release_all_pending(stage)
    found = await outcomes(stage, run)
    assert found["a"] == state
    assert found["run"] == ("failed" if state == "failed" else "cancelled")
    assert answer == ("cancelled" if state == "succeeded" else found["run"])


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
async def test_job_end_during_cancel_waits_and_strands_no_job(stage: Stage, state: str) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    canceller = await stage.connect()

    async with canceller.transaction():
        assert await cancel(stage, run.run, canceller) == "requested"
        ending = stage.meanwhile(end(stage, batch, state))
        await stage.waits(stage.engine, canceller)
    await ending
    await flows.release_all_pending(stage)

    assert await outcomes(stage, run) == {
        "a": state,
        **dict.fromkeys(["b", "c", "d", "run"], "cancelled"),
    }


async def test_cancel_waiting_job_is_applied_when_predecessor_ends(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    canceller = await stage.connect()

    async with canceller.transaction():
        assert await cancel(stage, run["b"], canceller) == "requested"
        ending = stage.meanwhile(end(stage, batch))
        await stage.waits(stage.engine, canceller)
    await ending

    assert await outcomes(stage, run) == {"a": "succeeded", "b": "cancelled", "run": "cancelled"}
    assert await stage.sql("select job from rota.cancels") == []


async def test_cancel_job_being_released_is_cancelled(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    canceller = await stage.connect()

    async with stage.engine.transaction():
        await end(stage, batch)
        cancelling = stage.meanwhile(cancel(stage, run["b"], canceller))
        await stage.waits(canceller, stage.engine)

    assert await cancelling == "cancelled"
    assert await outcomes(stage, run) == {"a": "succeeded", "b": "cancelled", "run": "cancelled"}


# The second write to rota.cancels for a job blocks until the advisory lock is released.
STOP_AT_THE_SECOND_LOOK = [
    "create sequence public.looks",
    """
    create function public.stop() returns trigger language plpgsql as $$ begin
        if new.job = {job} and nextval('public.looks') = 2 then
            perform pg_advisory_xact_lock(4711);
        end if;
        return new;
    end $$
    """,
    "create trigger stop before insert on rota.cancels for each row execute function public.stop()",
]


async def test_cancel_holding_waiting_rows_does_not_wait_for_claim(
    own_stage: Stage,
) -> None:
    """Between two searches the job is woken, claimed, and about to fail. The session that ends it waits
    for the cancel, so a cancel that waited for its claim would deadlock."""
    stage = own_stage
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    await stage.retry(await claim_only(stage, worker, "a"), delay=0.0)
    for statement in STOP_AT_THE_SECOND_LOOK:
        await stage.sql(statement.replace("{job}", str(run["a"])))
    gate, canceller, waker = [await stage.connect() for _ in range(3)]
    await stage.sql("select pg_advisory_lock(4711)", on=gate)

    async with waker.transaction():
        await stage.run(timers.wake(10), waker)
        cancelling = stage.meanwhile(cancel(stage, run.run, canceller))
        await stage.waits(canceller, waker)
    await stage.waits(canceller, gate)
    batch = await claim_only(stage, worker, "a")
    ending = stage.meanwhile(end(stage, batch, "failed"))
    await stage.waits(stage.engine, canceller)
    await stage.sql("select pg_advisory_unlock(4711)", on=gate)

    with pytest.raises(SerializationFailure, match="is changing its state; try again"):
        await cancelling
    await ending
    assert await cancel(stage, run.run) == "failed"


async def test_cancel_locks_claims_before_waiting_rows(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    holder, canceller = await stage.connect(engine=True), await stage.connect()

    async with holder.transaction():
        await stage.run(claims.lock(worker, [batch.id]), holder)
        cancelling = stage.meanwhile(cancel(stage, run.run, canceller))
        await stage.waits(canceller, holder)
        for row in (run.run, run["b"]):
            assert await is_free(stage, row)

    assert await cancelling == "requested"


async def test_cancel_locks_waiting_rows_by_rising_id(stage: Stage) -> None:
    run = await start(stage, {"a": [], "b": ["a"], "c": ["a"], "d": ["a"]})
    holder, canceller = await stage.connect(), await stage.connect()

    async with holder.transaction():
        await stage.sql("select from rota.waiting where job = %s for update", run["c"], on=holder)
        cancelling = stage.meanwhile(cancel(stage, run.run, canceller))
        await stage.waits(canceller, holder)
        assert not await is_free(stage, run.run)
        assert not await is_free(stage, run["b"])
        assert await is_free(stage, run["d"])

    assert await cancelling == "cancelled"


async def test_child_run_start_during_cancel_is_refused(stage: Stage) -> None:
    job, worker = await stage.start(), await stage.worker()
    held = await stage.claim(worker)
    canceller = await stage.connect()

    async with canceller.transaction():
        assert await cancel(stage, job, canceller) == "requested"
        calling = stage.meanwhile(flows.start_child_runs(stage, held, 2))
        await stage.waits(stage.engine, canceller)

    assert await calling == []
    assert await stage.sql("select id from rota.runs") == []


async def test_cancel_during_child_run_start_cancels_the_child_run(stage: Stage) -> None:
    job, worker = await stage.start(), await stage.worker()
    held = await stage.claim(worker)
    canceller = await stage.connect()

    async with stage.engine.transaction():
        [started] = await flows.start_child_runs(stage, held, 2)
        cancelling = stage.meanwhile(cancel(stage, job, canceller))
        await stage.waits(canceller, stage.engine)

    assert await cancelling == "requested"
    assert await stage.one("select state from rota.run_state where run = %s", started.run) == (
        "cancelled"
    )


async def test_cancel_during_retry_is_too_early_and_leaves_no_request(stage: Stage) -> None:
    """The cancel must neither report an unknown run nor leave a request behind."""
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    await run_one(stage, worker, "a", "failed")
    canceller = await stage.connect()

    async with stage.engine.transaction():
        await stage.run(runs.retry(run.run))
        assert await cancel(stage, run.run, canceller) == "failed"

    assert await stage.sql("select job from rota.cancels") == []
    assert await cancel(stage, run.run) == "cancelled"
