"""Starting runs of many jobs: a run is started whole or not at all, and calls only while the job is
held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from psycopg.errors import LockNotAvailable

from rota.store import flows as store
from rota.store import jobs, runs
from rota.store.flows import StartRun
from rota.store.jobs import StartedJob
from support import flows
from support.flows import DIAMOND, claim_only, end, outcomes, run_of, run_one, start
from support.stage import Connection, Stage

FUTURE = datetime(2040, 2, 29, tzinfo=UTC)


async def start_all(
    stage: Stage, given: list[StartRun], on: Connection | None = None
) -> list[StartedJob]:
    return await stage.run(store.start(given, notify=False), on)


# Places


async def test_flow_start_root_jobs_are_queued_and_successors_wait(stage: Stage) -> None:
    run = await start(stage, DIAMOND, {"d": "all_done"})

    assert await outcomes(stage, run) == {
        "a": "queued",
        **dict.fromkeys("bcd", "waiting"),
        "run": "running",
    }
    assert await stage.sql("select job, open, rule::text from rota.waiting order by job") == [
        (run.run, 1, None),
        (run["b"], 1, "all_succeeded"),
        (run["c"], 1, "all_succeeded"),
        (run["d"], 2, "all_done"),
    ]
    assert await stage.sql("select id, run, successors from rota.jobs order by id") == [
        (run["a"], run.run, [run["b"], run["c"]]),
        (run["b"], run.run, [run["d"]]),
        (run["c"], run.run, [run["d"]]),
        (run["d"], run.run, [run.run]),
    ]


async def test_flow_start_ids_rise_from_run_to_successors(stage: Stage) -> None:
    """Locks are acquired in the order of ids, and queued jobs use their id as position."""
    first, second = await start(stage, DIAMOND), await start(stage, DIAMOND)

    ids = [first.run, *first.jobs.values(), second.run, *second.jobs.values()]
    assert ids == sorted(ids)
    assert await stage.sql("select seq, job from rota.queued order by seq") == [
        (first["a"],) * 2,
        (second["a"],) * 2,
    ]


async def test_flow_start_several_runs_in_one_statement_stay_separate(stage: Stage) -> None:
    shapes = [DIAMOND, {"a": []}, {"a": [], "b": ["a"]}]

    started = await start_all(stage, [run_of(shape) for shape in shapes])

    worker = await stage.worker()
    laid = [
        await flows.load_run(stage, each.run, shape)
        for each, shape in zip(started, shapes, strict=True)
    ]
    assert all(each.created for each in started)
    while (batch := await flows.claim(stage, worker)).jobs:
        await end(stage, batch)
    for each, shape in zip(laid, shapes, strict=True):
        assert await outcomes(stage, each) == dict.fromkeys([*shape, "run"], "succeeded")


async def test_flow_start_in_the_future_sleeps_and_past_is_queued(stage: Stage) -> None:
    later = await start(stage, DIAMOND, at=FUTURE)
    delayed = await start(stage, DIAMOND, delay=timedelta(minutes=5))
    past = await start(stage, DIAMOND, at=datetime(2001, 1, 1, tzinfo=UTC))

    assert await stage.sql("select job, wake_at = %s from rota.sleeping order by job", FUTURE) == [
        (later["a"], True),
        (delayed["a"], False),
    ]
    assert await stage.sql("select job from rota.queued") == [past["a"]]
    assert await stage.one(
        "select wake_at - created between interval '299 s' and interval '301 s' from rota.sleeping"
        " join rota.jobs on id = job where job = %s",
        delayed["a"],
    )


async def test_flow_start_expiry_applies_to_all_jobs(stage: Stage) -> None:
    run = await start(stage, {"a": [], "b": ["a"]}, expires_in=timedelta(0))
    worker = await stage.worker()

    batch = await claim_only(stage, worker, "a")
    assert [job.expired for job in batch.members] == [True]
    await end(stage, batch, "expired")

    assert await outcomes(stage, run) == {"a": "expired", "b": "skipped", "run": "failed"}


async def test_flow_start_inputs_refer_to_jobs_of_same_run(stage: Stage) -> None:
    """In the second of two runs in one statement, numbers count from that run's own first job."""
    given = run_of({"a": [], "b": ["a"]})
    given = msgspec.structs.replace(
        given, jobs=msgspec.structs.replace(given.jobs, input_jobs='NULL,"{\\"x\\":1}"')
    )

    started = await start_all(stage, [given, given])

    for each in started:
        run = await flows.load_run(stage, each.run, {"a": [], "b": ["a"]})
        assert (
            await stage.one(
                "select (inputs ->> 'x')::bigint from rota.jobs where id = %s", run["b"]
            )
            == (run["a"])
        )


async def test_job_results_are_returned_for_succeeded_jobs_only(stage: Stage) -> None:
    run, worker = await start(stage, {"a": [], "b": [], "c": []}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    await stage.run(jobs.complete(worker, [batch.id], batch.jobs, ['{"x": 1}'], [0.1], [True]))
    await run_one(stage, worker, "b")
    await run_one(stage, worker, "c", "failed")

    found = await stage.run(store.job_results(sorted([*run.jobs.values(), 12345])))

    assert dict(found) == {run["a"]: '{"x": 1}', run["b"]: None}


@pytest.mark.parametrize("many", [10_000])
async def test_flow_start_ten_thousand_jobs_takes_one_statement(stage: Stage, many: int) -> None:
    names = [f"n{number}" for number in range(many - 1)]

    run = await start(stage, {**dict.fromkeys(names, ()), "last": names})

    assert await stage.one("select count(*) from rota.queued") == many - 1
    assert (await flows.waiting(stage))[run["last"]][0] == many - 1


# Keys


async def test_flow_start_taken_key_returns_the_existing_run(stage: Stage) -> None:
    first = await start(stage, DIAMOND, key="k")
    before = await stage.everything()

    [again] = await start_all(stage, [run_of(DIAMOND, key="k")])

    assert again == StartedJob(first.run, False)
    assert await stage.everything() == before


async def test_flow_start_batch_writes_only_runs_with_new_keys(stage: Stage) -> None:
    taken = await start(stage, DIAMOND, key="k1")

    started = await start_all(
        stage, [run_of(DIAMOND, key=key) for key in ("k0", "k1", "k2", "k2")] + [run_of(DIAMOND)]
    )

    assert [each.created for each in started] == [True, False, True, False, True]
    assert (started[1].run, started[3].run) == (taken.run, started[2].run)
    assert await stage.one("select count(*) from rota.jobs") == 16


async def test_flow_start_unique_open_key_is_free_after_run_end(stage: Stage) -> None:
    how: dict[str, Any] = {"key": "k", "unique_open": True}
    run, worker = await start(stage, {"a": []}, **how), await stage.worker()
    assert await start_all(stage, [run_of({"a": []}, **how)]) == [StartedJob(run.run, False)]

    await run_one(stage, worker, "a", "failed")

    [again] = await start_all(stage, [run_of({"a": []}, **how)])
    assert again.created


async def test_flow_start_concurrent_same_key_second_gets_first_run(
    stage: Stage,
) -> None:
    other = await stage.connect()

    async with stage.engine.transaction():
        [first] = await start_all(stage, [run_of(DIAMOND, key="k")])
        second = stage.meanwhile(start_all(stage, [run_of(DIAMOND, key="k")], other))
        await stage.waits(other, stage.engine)

    assert await second == [StartedJob(first.run, False)]
    assert await stage.one("select count(*) from rota.runs") == 1


# Calls of a job


async def test_child_runs_are_started_once_per_call_number(stage: Stage) -> None:
    held = await stage.held(1)

    [one] = await flows.start_child_runs(stage, held, 3)
    assert await flows.start_child_runs(stage, held, 3) == []
    [two] = await flows.start_child_runs(stage, held, 2, number=1)

    assert await stage.sql("select id, parent, number from rota.runs order by id") == [
        (one.run, held.jobs[0], 0),
        (two.run, held.jobs[0], 1),
    ]
    [known] = await stage.run(runs.calls(held.jobs[0], 1))
    assert (known.run, known.state, known.is_failing) == (two.run, None, False)


@pytest.mark.parametrize(
    "why", ["given back", "another worker", "another claim", "cancelled", "over"]
)
async def test_child_run_start_by_non_holder_starts_nothing(stage: Stage, why: str) -> None:
    held = await stage.held(1)
    match why:
        case "given back":
            await stage.give_back(held)
        case "another worker":
            await stage.sql("update rota.claims set worker = worker + 1")
        case "another claim":
            await stage.give_back(held)
            await stage.claim(held.worker)
        case "cancelled":
            await stage.run(runs.cancel(held.jobs[0]), stage.watch)
        case "over":
            await stage.complete(held)
    before = await stage.everything()

    assert await flows.start_child_runs(stage, held, 3) == []
    assert await stage.everything() == before


async def test_child_run_start_after_leaving_the_claim_starts_nothing(stage: Stage) -> None:
    held = await stage.held(2)
    await stage.give_back(held, held.jobs[:1])
    assert await stage.held_by(held.id) == held.jobs[1:]

    assert await flows.start_child_runs(stage, held, 3) == []
    assert await stage.sql("select id from rota.runs") == []


async def test_child_run_start_locks_the_claim_until_commit(stage: Stage) -> None:
    """Until then the job cannot be taken back: such a session waits, and then finds the calls."""
    held = await stage.held(1)
    other = await stage.connect(engine=True)

    async with stage.engine.transaction():
        await flows.start_child_runs(stage, held, 1)
        giving = stage.meanwhile(stage.give_back(held, on=other))
        await stage.waits(other, stage.engine)
        with pytest.raises(LockNotAvailable):
            await stage.sql("select from rota.claims for update nowait")

    assert await giving == ["default"]
    assert await stage.one("select count(*) from rota.runs") == 1


async def test_child_flow_is_part_of_the_run_of_all_calls(stage: Stage) -> None:
    held = await stage.held(1)

    whole, part = await flows.start_child_runs(
        stage, held, 2, [run_of({"x": [], "y": ["x"]}, part_of=1)]
    )

    assert (await flows.waiting(stage))[whole.run] == (3, 0, 0, 0)
    assert await stage.sql(
        "select parent, number, successors from rota.runs where id = %s", part.run
    ) == [(held.jobs[0], None, [whole.run])]
    while (batch := await flows.claim(stage, held.worker)).jobs:
        await end(stage, batch)
    assert (
        await stage.sql(
            "select state::text from rota.outcomes where job = any(%s)", [whole.run, part.run]
        )
        == ["succeeded"] * 2
    )
