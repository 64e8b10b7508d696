"""Retention: which runs are removed, with all their rows, and how many in one batch."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.store import retention
from rota.store.retention import PrunableRow
from support.old_runs import TABLES, OldRuns
from support.plans import explain
from support.stage import Stage


@pytest.fixture
def past(stage: Stage) -> OldRuns:
    return OldRuns(stage)


# Selection


async def test_prune_removes_runs_older_than_retention(past: OldRuns) -> None:
    old, young = await past.ended(7.01), await past.ended(6.99)

    await past.prune("7d")

    assert await past.jobs() == [young]
    assert await past.mentions(old) == {}


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])
async def test_prune_applies_retention_per_outcome(past: OldRuns, state: str) -> None:
    await past.ended(10)
    other = await past.ended(10, state)

    await past.prune(f"7d {state}=30d")

    assert await past.jobs() == [other]


async def test_prune_applies_retention_per_queue(past: OldRuns) -> None:
    ordinary = await past.ended(2)
    await past.ended(2, queue="images")
    failed = await past.ended(2, "failed", queue="images")

    await past.prune("7d; images: 1d failed=30d")

    assert await past.jobs() == [ordinary, failed]


async def test_prune_keeps_queue_with_retention_forever(past: OldRuns) -> None:
    kept = await past.ended(99_999, queue="audit")
    await past.ended(99_999)

    await past.prune("1d; audit: forever")

    assert await past.jobs() == [kept]


async def test_prune_counts_from_the_end_of_the_run(past: OldRuns) -> None:
    late = await past.ended(1, created=40)

    await past.prune("7d")

    assert await past.jobs() == [late]


async def test_prune_keeps_open_runs_of_any_age(past: OldRuns, stage: Stage) -> None:
    await stage.held(1)
    await stage.start()
    await stage.start(delay=timedelta(days=1))
    await past.flow(40, open=True)
    await stage.sql("update rota.jobs set created = created - interval '90 days'")
    before = await stage.everything()

    await past.prune("0s")

    assert await stage.everything() == before


# Related rows


async def test_prune_removes_all_rows_of_a_run(past: OldRuns, stage: Stage) -> None:
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


async def test_prune_frees_the_key_of_a_removed_run(past: OldRuns, stage: Stage) -> None:
    old = await past.ended(40, key="k")
    assert await stage.start(key="k") == old

    await past.prune()

    assert await stage.start(key="k") != old


async def test_prune_keeps_key_taken_over_by_another_run(past: OldRuns, stage: Stage) -> None:
    old = await past.ended(40, key="k")
    new = await past.ended(1)
    await stage.sql("update rota.keys set run = %s", new)

    await past.prune()

    assert await past.mentions(old) == {}
    assert await past.mentions(new) == {"jobs": 1, "outcomes": 1, "keys": 1}


async def test_prune_keeps_run_until_its_unique_key_expires(past: OldRuns, stage: Stage) -> None:
    run = await past.ended(40, key="k")
    await stage.sql("update rota.keys set expires = rota.clock() + interval '1 min'")
    await past.prune()
    assert await past.jobs() == [run]

    await stage.sql("update rota.keys set expires = rota.clock() - interval '1 min'")
    await past.prune()

    assert await past.mentions(run) == {}


async def test_prune_ignores_key_unique_only_while_open(past: OldRuns, stage: Stage) -> None:
    await past.ended(40, key="k")
    await stage.sql(
        "update rota.keys set expires = rota.clock() + interval '1 min', while_open = true"
    )

    await past.prune()

    assert await past.jobs() == []


# Flows


async def test_prune_flow_uses_outcome_of_run_not_of_jobs(past: OldRuns) -> None:
    failed, members = await past.flow(10, "failed")
    await past.flow(10)

    await past.prune("7d failed=30d")

    assert await past.jobs() == members
    assert await past.mentions(failed) == {"runs": 1, "outcomes": 1}


async def test_prune_flow_uses_longest_retention_of_its_queues(past: OldRuns) -> None:
    _, mixed = await past.flow(2, queues=("images", "default"))
    _, audited = await past.flow(2, queues=("images", "audit", "images"))
    await past.flow(2, queues=("images", "images"))

    await past.prune("7d; images: 1d; audit: forever")
    assert await past.jobs() == mixed + audited

    await past.prune("1d; images: 1d; audit: forever")
    assert await past.jobs() == audited


async def test_prune_removes_old_run_without_jobs(past: OldRuns) -> None:
    """A run of calls that are all flows has no jobs."""
    old, _ = await past.flow(40, queues=())
    young, _ = await past.flow(1, queues=())

    found = await past.prune("7d")

    assert found.rows == [PrunableRow(None, "succeeded", 1, 0)]
    assert await past.mentions(old) == {}
    assert await past.mentions(young) == {"runs": 1, "outcomes": 1}


async def test_prune_keeps_listed_jobs_of_another_run(past: OldRuns, stage: Stage) -> None:
    other, members = await past.flow(1)
    run, _ = await past.flow(40)
    await stage.sql("update rota.runs set jobs = jobs || %s::bigint[] where id = %s", members, run)

    await past.prune()

    assert await past.mentions(run) == {}
    assert await past.jobs() == members
    assert await past.mentions(other) == {"runs": 1, "outcomes": 1}


async def test_prune_keeps_child_runs_until_the_parent_job_ends(
    past: OldRuns, stage: Stage
) -> None:
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


async def test_prune_removes_child_runs_of_removed_parent(past: OldRuns) -> None:
    await past.flow(40, parent=10**9)

    await past.prune()

    assert await past.jobs() == []


async def test_prune_keeps_part_until_its_whole_run_is_removed(past: OldRuns) -> None:
    whole, _ = await past.flow(1)
    part, members = await past.flow(40, part_of=whole)
    await past.prune("7d")
    assert (await past.mentions(part, *members))["jobs"] == 2

    await past.prune("1h", after=whole - 1, most=1)
    await past.prune("7d")

    assert await past.mentions(whole, part, *members) == {}


async def test_prune_keeps_run_with_pending_release(past: OldRuns, stage: Stage) -> None:
    run, _ = await past.flow(40)
    await stage.sql("insert into rota.pending_releases values (%s, 'succeeded')", run)

    await past.prune()

    assert run in await stage.sql("select id from rota.runs")


# Size of a batch


async def test_prune_batch_is_bounded_and_the_next_continues(past: OldRuns) -> None:
    ids = [await past.ended(40) for _ in range(5)]

    first = await past.prune(most=2)
    assert await past.jobs() == ids[2:]
    second = await past.prune(most=2, after=first.position)
    third = await past.prune(most=2, after=second.position)

    assert [first.has_more, second.has_more, third.has_more] == [True, True, False]
    assert await past.jobs() == []


async def test_prune_batch_removes_whole_runs_only(past: OldRuns) -> None:
    singles = [await past.ended(40) for _ in range(2)]
    run, members = await past.flow(40, queues=["default"] * 5)
    last = await past.ended(40)

    found = await past.prune(most=3)
    assert await past.jobs() == [*members, last]
    assert (found.position, found.has_more) == (singles[-1], True)

    found = await past.prune(most=3, after=found.position)
    assert await past.jobs() == [last]
    assert (found.position, found.has_more) == (run, True)


async def test_prune_batch_ended_by_large_run_has_more(past: OldRuns, stage: Stage) -> None:
    first, _ = await past.flow(40, queues=())
    await past.flow(40, queues=())
    # The weight of a run is its number of jobs, here of jobs without rows.
    await stage.sql("update rota.runs set jobs = '{101, 102, 103}'")

    found = await past.prune(most=5)

    assert (found.position, found.has_more) == (first, True)


async def test_prune_batch_skips_kept_runs(past: OldRuns) -> None:
    kept = [await past.ended(40, "failed") for _ in range(4)]
    await past.ended(40)

    found = await past.prune("7d failed=forever", most=2)
    assert (found.position, found.has_more, found.rows) == (kept[1], True, [])
    while found.has_more:
        found = await past.prune("7d failed=forever", most=2, after=found.position)

    assert await past.jobs() == kept


async def test_prune_stops_at_runs_too_young_for_any_rule(past: OldRuns) -> None:
    old = await past.ended(40, "failed")
    for _ in range(6):
        await past.ended(1)
    await past.ended(40)  # beyond the scanned range: ids rise with time

    found = await past.prune("7d failed=forever", most=3)
    assert (found.position, found.has_more) == (old, True)
    found = await past.prune("7d failed=forever", most=3, after=old)

    assert (found.position, found.has_more, found.rows) == (old, False, [])


async def test_prune_continues_past_a_young_run_out_of_order(past: OldRuns) -> None:
    odd = await past.ended(1)
    await past.ended(40)

    found = await past.prune("7d", most=2)

    assert found.has_more
    assert await past.jobs() == [odd]


async def test_prune_empty_history_has_no_more(past: OldRuns) -> None:
    found = await past.prune(after=7)

    assert (found.position, found.has_more, found.rows) == (7, False, [])


async def test_find_prunable_counts_by_queue_and_outcome(past: OldRuns, stage: Stage) -> None:
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
async def test_prune_statements_read_few_rows_by_index(own_stage: Stage, analysed: str) -> None:
    stage, past = own_stage, OldRuns(own_stage)
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
