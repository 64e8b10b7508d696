"""Retention: which runs are removed, with all their rows, and how many in one batch."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.store import retention
from rota.store.retention import PrunableRow

from .past import TABLES, Past
from .stage import Stage
from .test_plans import explain


@pytest.fixture
def past(stage: Stage) -> Past:
    return Past(stage)


# Selection


async def test_what_ended_longer_ago_than_it_is_kept_goes(past: Past) -> None:
    old, young = await past.ended(7.01), await past.ended(6.99)

    await past.prune("7d")

    assert await past.jobs() == [young]
    assert await past.mentions(old) == {}


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])
async def test_each_outcome_has_a_time_of_its_own(past: Past, state: str) -> None:
    await past.ended(10)
    other = await past.ended(10, state)

    await past.prune(f"7d {state}=30d")

    assert await past.jobs() == [other]


async def test_a_queue_has_times_of_its_own(past: Past) -> None:
    ordinary = await past.ended(2)
    await past.ended(2, queue="images")
    failed = await past.ended(2, "failed", queue="images")

    await past.prune("7d; images: 1d failed=30d")

    assert await past.jobs() == [ordinary, failed]


async def test_forever_is_forever(past: Past) -> None:
    kept = await past.ended(99_999, queue="audit")
    await past.ended(99_999)

    await past.prune("1d; audit: forever")

    assert await past.jobs() == [kept]


async def test_it_is_the_end_of_a_run_that_counts(past: Past) -> None:
    late = await past.ended(1, created=40)

    await past.prune("7d")

    assert await past.jobs() == [late]


async def test_what_has_not_ended_stays_however_old_it_is(past: Past, stage: Stage) -> None:
    await stage.held(1)
    await stage.start()
    await stage.start(delay=timedelta(days=1))
    await past.flow(40, open=True)
    await stage.sql("update rota.jobs set created = created - interval '90 days'")
    before = await stage.everything()

    await past.prune("0s")

    assert await stage.everything() == before


# Related rows


async def test_a_run_goes_with_everything_that_is_about_it(past: Past, stage: Stage) -> None:
    alone = await past.ended(40, key="a")
    run, members = await past.flow(40, key="a")
    everything = [alone, run, *members]
    for id in everything:
        await stage.sql(
            "insert into rota.attempts (job, state, attempt) values (%s, 'failed', 1)", id
        )
        await stage.sql("insert into rota.waiters values (%s, 'me'), (%s, 'you')", id, id)
        await stage.sql("insert into rota.cancels (job) values (%s)", id)
    bystander = await past.ended(1, key="b")
    await stage.sql("insert into rota.waiters values (%s, 'me')", bystander)
    await past.lived(*everything, bystander)
    about = await past.mentions(bystander)

    await past.prune()

    assert await past.mentions(*everything) == {}
    assert await past.mentions(bystander) == about


async def test_a_key_goes_with_its_run_and_can_be_taken_again(past: Past, stage: Stage) -> None:
    old = await past.ended(40, key="k")
    assert await stage.start(key="k") == old

    await past.prune()

    assert await stage.start(key="k") != old


async def test_a_key_that_another_run_has_taken_over_stays_with_that(
    past: Past, stage: Stage
) -> None:
    old = await past.ended(40, key="k")
    new = await past.ended(1)
    await stage.sql("update rota.keys set run = %s", new)

    await past.prune()

    assert await past.mentions(old) == {}
    assert await past.mentions(new) == {"jobs": 1, "outcomes": 1, "keys": 1}


async def test_a_key_asked_to_be_unique_for_a_time_keeps_its_run_that_long(
    past: Past, stage: Stage
) -> None:
    run = await past.ended(40, key="k")
    await stage.sql("update rota.keys set expires = rota.clock() + interval '1 min'")
    await past.prune()
    assert await past.jobs() == [run]

    await stage.sql("update rota.keys set expires = rota.clock() - interval '1 min'")
    await past.prune()

    assert await past.mentions(run) == {}


async def test_a_key_that_was_unique_only_while_open_keeps_nothing(
    past: Past, stage: Stage
) -> None:
    await past.ended(40, key="k")
    await stage.sql(
        "update rota.keys set expires = rota.clock() + interval '1 min', while_open = true"
    )

    await past.prune()

    assert await past.jobs() == []


# Flows


async def test_a_flow_goes_by_its_own_outcome_and_not_by_its_jobs(past: Past) -> None:
    failed, members = await past.flow(10, "failed")
    await past.flow(10)

    await past.prune("7d failed=30d")

    assert await past.jobs() == members
    assert await past.mentions(failed) == {"runs": 1, "outcomes": 1}


async def test_a_flow_is_kept_as_long_as_the_longest_of_its_queues_says(past: Past) -> None:
    _, mixed = await past.flow(2, queues=("images", "default"))
    _, audited = await past.flow(2, queues=("images", "audit", "images"))
    await past.flow(2, queues=("images", "images"))

    await past.prune("7d; images: 1d; audit: forever")
    assert await past.jobs() == mixed + audited

    await past.prune("1d; images: 1d; audit: forever")
    assert await past.jobs() == audited


async def test_a_run_without_jobs_goes_too(past: Past) -> None:
    """A run of calls that are all flows has no jobs."""
    old, _ = await past.flow(40, queues=())
    young, _ = await past.flow(1, queues=())

    found = await past.prune("7d")

    assert found.rows == [PrunableRow(None, "succeeded", 1, 0)]
    assert await past.mentions(old) == {}
    assert await past.mentions(young) == {"runs": 1, "outcomes": 1}


async def test_a_job_of_another_run_is_left_alone_whoever_lists_it(
    past: Past, stage: Stage
) -> None:
    other, members = await past.flow(1)
    run, _ = await past.flow(40)
    await stage.sql("update rota.runs set jobs = jobs || %s::bigint[] where id = %s", members, run)

    await past.prune()

    assert await past.mentions(run) == {}
    assert await past.jobs() == members
    assert await past.mentions(other) == {"runs": 1, "outcomes": 1}


async def test_calls_of_an_open_job_stay_until_it_ends(past: Past, stage: Stage) -> None:
    caller = await stage.start()
    calls, members = await past.flow(40, parent=caller)
    found = await past.prune()
    assert found.rows == []
    assert await past.jobs() == [caller, *members]

    await stage.sql("delete from rota.queued")
    await past.outcome(caller, 0)
    await past.prune()

    assert await past.jobs() == [caller]
    assert await past.mentions(calls) == {}


async def test_calls_of_a_job_that_is_gone_go(past: Past) -> None:
    await past.flow(40, parent=10**9)

    await past.prune()

    assert await past.jobs() == []


async def test_a_part_of_a_run_goes_after_it(past: Past) -> None:
    whole, _ = await past.flow(1)
    part, members = await past.flow(40, part_of=whole)
    await past.prune("7d")
    assert (await past.mentions(part, *members))["jobs"] == 2

    await past.prune("1h", after=whole - 1, most=1)
    await past.prune("7d")

    assert await past.mentions(whole, part, *members) == {}


async def test_a_run_stays_while_those_who_wait_for_it_have_not_been_told(
    past: Past, stage: Stage
) -> None:
    run, _ = await past.flow(40)
    await stage.sql("insert into rota.pending_releases values (%s, 'succeeded')", run)

    await past.prune()

    assert run in await stage.sql("select id from rota.runs")


# Size of a batch


async def test_a_batch_is_bounded_and_the_next_goes_on_where_it_ended(past: Past) -> None:
    ids = [await past.ended(40) for _ in range(5)]

    first = await past.prune(most=2)
    assert await past.jobs() == ids[2:]
    second = await past.prune(most=2, after=first.position)
    third = await past.prune(most=2, after=second.position)

    assert [first.has_more, second.has_more, third.has_more] == [True, True, False]
    assert await past.jobs() == []


async def test_a_run_goes_whole_or_not_at_all(past: Past) -> None:
    singles = [await past.ended(40) for _ in range(2)]
    run, members = await past.flow(40, queues=["default"] * 5)
    last = await past.ended(40)

    found = await past.prune(most=3)
    assert await past.jobs() == [*members, last]
    assert (found.position, found.has_more) == (singles[-1], True)

    found = await past.prune(most=3, after=found.position)
    assert await past.jobs() == [last]
    assert (found.position, found.has_more) == (run, True)


async def test_a_batch_that_ends_because_the_next_run_is_large_is_not_the_last(
    past: Past, stage: Stage
) -> None:
    first, _ = await past.flow(40, queues=())
    await past.flow(40, queues=())
    # The weight of a run is its number of jobs, here of jobs without rows.
    await stage.sql("update rota.runs set jobs = '{101, 102, 103}'")

    found = await past.prune(most=5)

    assert (found.position, found.has_more) == (first, True)


async def test_runs_that_are_kept_are_passed_by(past: Past) -> None:
    kept = [await past.ended(40, "failed") for _ in range(4)]
    await past.ended(40)

    found = await past.prune("7d failed=forever", most=2)
    assert (found.position, found.has_more, found.rows) == (kept[1], True, [])
    while found.has_more:
        found = await past.prune("7d failed=forever", most=2, after=found.position)

    assert await past.jobs() == kept


async def test_what_is_too_young_for_any_rule_is_where_it_ends(past: Past) -> None:
    old = await past.ended(40, "failed")
    for _ in range(6):
        await past.ended(1)
    await past.ended(40)  # beyond the scanned range: ids rise with time

    found = await past.prune("7d failed=forever", most=3)
    assert (found.position, found.has_more) == (old, True)
    found = await past.prune("7d failed=forever", most=3, after=old)

    assert (found.position, found.has_more, found.rows) == (old, False, [])


async def test_one_that_is_out_of_order_does_not_stop_it(past: Past) -> None:
    odd = await past.ended(1)
    await past.ended(40)

    found = await past.prune("7d", most=2)

    assert found.has_more
    assert await past.jobs() == [odd]


async def test_an_empty_history_is_at_its_end(past: Past) -> None:
    found = await past.prune(after=7)

    assert (found.position, found.has_more, found.rows) == (7, False, [])


async def test_looking_counts_by_queue_and_outcome_and_changes_nothing(
    past: Past, stage: Stage
) -> None:
    await past.ended(40, "failed")
    await past.ended(40, queue="images")
    await past.flow(40, queues=("images", "images"))
    await past.flow(40, queues=("images", "default"))
    before = await stage.everything()

    found = await past.find("7d")

    assert sorted(found.rows, key=str) == [
        PrunableRow("default", "failed", 1, 1),
        PrunableRow("images", "succeeded", 2, 3),
        PrunableRow(None, "succeeded", 1, 2),
    ]
    assert await stage.everything() == before
    assert sorted(await past.remove(found), key=str) == sorted(found.rows, key=str)


# Cost


@pytest.mark.parametrize("analysed", ["never", "empty", "full"])
async def test_statements_read_by_index_and_only_what_they_work_on(
    own_stage: Stage, analysed: str
) -> None:
    stage, past = own_stage, Past(own_stage)
    for table in TABLES:
        await stage.sql(f"alter table rota.{table} set (autovacuum_enabled = off)")
    if analysed == "empty":
        await stage.sql("analyze")
    await stage.sql(
        "insert into rota.jobs (created, task, queue, args)"
        " select rota.clock() - interval '40 days', 'work', 'default', '{}'"
        "   from generate_series(1, 2000)"
    )
    await stage.sql(
        "insert into rota.outcomes (job, at, state, attempt)"
        " select id, created, 'succeeded', 1 from rota.jobs"
    )
    await stage.sql("insert into rota.waiters select id, 'me' from rota.jobs")
    await past.lived(*await past.jobs())
    for _ in range(10):
        await past.flow(40)
    if analysed == "full":
        await stage.sql("analyze")
    found = await past.find(most=20, after=1000)

    for query in (retention.find(past.rules("7d"), 1000, 20), retention.remove(found)):
        for scan in await explain(stage, query):
            assert scan.kind != "Seq Scan", scan
            assert scan.read <= 80, scan
