"""History of a run: states as in the view `job_state`, in order of time, without reading other runs'
jobs."""

from __future__ import annotations

import pytest

from rota.store import audit, runs
from rota.store.read import run_history
from rota.store.read import runs as read_runs
from support import flows
from support.journals import (
    received_wait,
    record_entries,
    send_signal,
    sleep,
    step,
    suspend_job,
    wait,
)
from support.lost_workers import quarantine
from support.plans import fill
from support.stage import EMPTY, Stage
from support.step_reads import read_by

GRAPH = {
    **dict.fromkeys(("good", "bad", "tried", "napping", "aside", "going", "next"), ()),
    "last": ("good", "going"),
    "skipped": ("bad",),
}


async def start_flow_in_every_state(stage: Stage) -> flows.StartedRun:
    """Start a flow and move its jobs to every place a job can be in."""
    laid = await flows.start(stage, GRAPH)
    worker = await stage.worker()
    await flows.run_one(stage, worker, "good")
    await flows.run_one(stage, worker, "bad", "failed")
    await stage.retry(await flows.claim_only(stage, worker, "tried"), delay=0)
    napping = await flows.claim_only(stage, worker, "napping")
    await record_entries(stage, napping, step("look", duration=0.25))
    await suspend_job(stage, napping, wait("go", position=2))
    await quarantine(stage, await flows.claim_only(stage, worker, "aside"))
    await flows.claim_only(stage, worker, "going")
    return laid


async def test_run_jobs_have_same_states_as_job_state_view(stage: Stage) -> None:
    laid = await start_flow_in_every_state(stage)
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


async def test_run_events_are_listed_newest_first(stage: Stage) -> None:
    laid = await start_flow_in_every_state(stage)
    await send_signal(stage, laid.run, "other")
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


async def test_run_event_began_is_end_time_minus_duration(stage: Stage) -> None:
    laid = await start_flow_in_every_state(stage)

    found = await stage.run(run_history.run_events(laid["bad"]))

    [began] = [each for each in found if each.kind == "began"]
    [failed] = [each for each in found if each.kind == "failed"]
    assert (failed.at - began.at).total_seconds() == 0.1
    assert failed.seconds == pytest.approx(0.1)
    assert failed.error == b'{"type": "E"}'


async def test_run_events_of_a_job_list_only_that_job(stage: Stage) -> None:
    laid = await start_flow_in_every_state(stage)

    found = await stage.run(run_history.run_events(laid["napping"]))

    assert {each.job for each in found} == {laid["napping"]}
    assert {each.kind for each in found} == {"created", "step", "wait", "sleeping"}


async def test_run_events_respect_limit_and_omit_steps_of_many_jobs(stage: Stage) -> None:
    laid = await start_flow_in_every_state(stage)

    assert len(await stage.run(run_history.run_events(laid.run, limit=3))) == 3
    told = await stage.run(run_history.run_events(laid.run, max_jobs_with_steps=5))
    assert "step" not in {each.kind for each in told}


async def test_run_steps_list_steps_sleeps_and_waits(stage: Stage) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, step("look", duration=0.25), sleep(60, position=2))
    await suspend_job(stage, batch, wait("go", position=3))
    await send_signal(stage, batch.jobs[0])
    again = await stage.claim(batch.worker)
    await record_entries(stage, again, received_wait("go", position=3))

    found = await stage.run(run_history.run_steps(batch.jobs[0]))

    assert [(each.kind, each.name, each.open) for each in found] == [
        *(("step", "look", False), ("sleep", "sleep", False), ("wait", "go", False)),
    ]
    assert found[0].seconds == 0.25
    assert found[1].until is not None
    assert (found[1].until - found[1].at).total_seconds() == 60


async def test_traceparent_of_flow_run_is_from_its_first_job(stage: Stage) -> None:
    trace = f"00-{'4' * 32}-{'1' * 16}-01"
    laid = await flows.start(stage, {"a": (), "b": ("a",)})
    assert await stage.run(run_history.traceparent(laid.run)) == []

    await stage.sql("update rota.jobs set trace = %s where id = %s", trace, laid["a"])

    assert await stage.run(run_history.traceparent(laid.run)) == [trace]
    assert await stage.run(run_history.traceparent(laid["a"])) == [trace]


async def test_run_queries_do_not_read_jobs_of_other_runs(own_stage: Stage) -> None:
    stage = own_stage
    await stage.sql("alter table rota.jobs set (autovacuum_enabled = off)")
    await fill(stage, 20_000)
    await stage.sql("analyze")
    laid = await start_flow_in_every_state(stage)
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
