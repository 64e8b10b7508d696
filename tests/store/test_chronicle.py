"""History of a run: states as in the view `job_state`, in order of time, without reading other runs'
jobs."""

from __future__ import annotations

import pytest

from rota.store import audit, runs
from rota.store.read import run_history
from rota.store.read import runs as read_runs

from . import flows
from .durably import heard, keep, lie_down, say, sleep, step, wait
from .losses import quarantine
from .stage import EMPTY, Stage
from .test_durable_plans import read_by
from .test_plans import fill

GRAPH = {
    **dict.fromkeys(("good", "bad", "tried", "napping", "aside", "going", "next"), ()),
    "last": ("good", "going"),
    "skipped": ("bad",),
}


async def everywhere(stage: Stage) -> flows.Laid:
    """Start a flow and move its jobs to every place a job can be in."""
    laid = await flows.start(stage, GRAPH)
    worker = await stage.worker()
    await flows.run_one(stage, worker, "good")
    await flows.run_one(stage, worker, "bad", "failed")
    await stage.retry(await flows.claim_only(stage, worker, "tried"), delay=0)
    napping = await flows.claim_only(stage, worker, "napping")
    await keep(stage, napping, step("look", duration=0.25))
    await lie_down(stage, napping, wait("go", position=2))
    await quarantine(stage, await flows.claim_only(stage, worker, "aside"))
    await flows.claim_only(stage, worker, "going")
    return laid


async def test_jobs_of_a_run_are_told_as_the_view_of_all_jobs_tells_them(stage: Stage) -> None:
    laid = await everywhere(stage)
    await stage.start_several(5)

    found = await stage.run(read_runs.jobs(laid.run))

    told = [
        (each.job, each.task, each.queue, each.state, each.attempt, each.worker, each.since)
        for each in found
    ]
    viewed = await stage.sql(
        "select job, task, queue, state, attempt, worker, since from rota.job_state"
        " where run = %s order by job",
        laid.run,
    )
    assert sorted(told) == [tuple(each) for each in viewed]
    assert {state for _, _, _, state, *_ in told} == {
        *(
            "succeeded",
            "failed",
            "queued",
            "sleeping",
            "quarantined",
            "running",
            "waiting",
            "skipped",
        )
    }


async def test_what_happened_is_told_the_last_first(stage: Stage) -> None:
    laid = await everywhere(stage)
    await say(stage, laid.run, "other")
    await flows.cancel(stage, laid["going"])

    found = await stage.run(run_history.run_events(laid.run))

    assert [each.at for each in found] == sorted((each.at for each in found), reverse=True)
    names = {job: name for name, job in laid.jobs.items()} | {laid.run: "run", None: ""}
    told = {(names[each.job], each.kind) for each in found}
    assert told == {
        *(("run", "created"), ("", "signal")),
        *(("good", "began"), ("good", "succeeded"), ("bad", "began"), ("bad", "failed")),
        *(("tried", "began"), ("tried", "failed"), ("tried", "sleeping"), ("skipped", "skipped")),
        *(("napping", "sleeping"), ("napping", "step"), ("napping", "wait")),
        *(("aside", "quarantined"), ("going", "claimed"), ("going", "cancel_requested")),
    }


async def test_an_attempt_began_when_it_ended_less_what_it_took(stage: Stage) -> None:
    laid = await everywhere(stage)

    found = await stage.run(run_history.run_events(laid["bad"]))

    [began] = [each for each in found if each.kind == "began"]
    [failed] = [each for each in found if each.kind == "failed"]
    assert (failed.at - began.at).total_seconds() == 0.1
    assert failed.seconds == pytest.approx(0.1)
    assert failed.error == b'{"type": "E"}'


async def test_of_one_job_only_its_own_doings_are_told(stage: Stage) -> None:
    laid = await everywhere(stage)

    found = await stage.run(run_history.run_events(laid["napping"]))

    assert {each.job for each in found} == {laid["napping"]}
    assert {each.kind for each in found} == {"created", "step", "wait", "sleeping"}


async def test_no_more_is_told_than_asked_for_and_steps_only_of_few_jobs(stage: Stage) -> None:
    laid = await everywhere(stage)

    assert len(await stage.run(run_history.run_events(laid.run, limit=3))) == 3
    told = await stage.run(run_history.run_events(laid.run, max_jobs_with_steps=5))
    assert "step" not in {each.kind for each in told}


async def test_doings_are_what_the_code_did_and_slept_through(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, step("look", duration=0.25), sleep(60, position=2))
    await lie_down(stage, batch, wait("go", position=3))
    await say(stage, batch.jobs[0])
    again = await stage.claim(batch.worker)
    await keep(stage, again, heard("go", position=3))

    found = await stage.run(run_history.run_steps(batch.jobs[0]))

    assert [(each.kind, each.name, each.open) for each in found] == [
        *(("step", "look", False), ("sleep", "sleep", False), ("wait", "go", False)),
    ]
    assert found[0].seconds == 0.25
    assert found[1].until is not None
    assert (found[1].until - found[1].at).total_seconds() == 60


async def test_the_trace_of_a_run_is_that_of_its_first_job(stage: Stage) -> None:
    trace = f"00-{'4' * 32}-{'1' * 16}-01"
    laid = await flows.start(stage, {"a": (), "b": ("a",)})
    assert await stage.run(run_history.traceparent(laid.run)) == []

    await stage.sql("update rota.jobs set trace = %s where id = %s", trace, laid["a"])

    assert await stage.run(run_history.traceparent(laid.run)) == [trace]
    assert await stage.run(run_history.traceparent(laid["a"])) == [trace]


async def test_jobs_of_others_are_not_read(own_stage: Stage) -> None:
    stage = own_stage
    await stage.sql("alter table rota.jobs set (autovacuum_enabled = off)")
    await fill(stage, 20_000)
    await stage.sql("analyze")
    laid = await everywhere(stage)
    deeds = audit.entries(10, subject=str(laid.run))
    queries = (
        read_runs.jobs(laid.run),
        read_runs.job_attempts(laid.run),
        read_runs.child_runs(laid.run),
        run_history.run_events(laid.run),
        run_history.run_steps(laid.run),
        run_history.traceparent(laid.run),
        runs.results(laid.run),
        deeds,
    )
    for query in queries:
        # On an ordinary connection, as pages use it; the engine's connections do not scan tables.
        read = await read_by(stage, query, await stage.connect())
        assert sum(read.values()) < 300, (query.statement, read)
    await stage.sql(EMPTY)
