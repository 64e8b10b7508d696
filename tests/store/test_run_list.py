"""Listing of runs: it scans the tables of each state in windows.

The result equals that of a full scan, and the number of rows read is bounded.
"""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import sql

from rota.operations import run_search
from rota.operations.run_search import RunSearchResult
from rota.store import runs
from rota.store.query import REVERSED, Query, load, positional
from rota.store.read import run_list as store
from rota.store.read.run_list import FAILED_STATES, MAX_ID, OPEN_STATES, ListPosition, RunFilter
from support import flows
from support.lost_workers import quarantine
from support.plans import scans
from support.scale import scale
from support.stage import Stage

STATES: list[tuple[str, ...] | None] = [
    *((state,) for state in (*OPEN_STATES, *FAILED_STATES, "succeeded")),
    OPEN_STATES,
    FAILED_STATES,
    None,
]
MANY = 20_000

# The expected rows, from the view.
THROUGH_ALL = """
select state.run, state.name, state.is_flow, state.state
  from rota.run_state as state
 where state.parent is null
   and (%(states)s::text[] is null or state.state = any(%(states)s))
   and (%(name)s::text is null or state.name = %(name)s)
   and (%(queue)s::text is null or state.queue = %(queue)s)
   and state.run < %(before)s
   and state.run > %(after)s
 order by state.run desc
"""


async def fill(stage: Stage) -> None:
    """Create runs of tasks and of flows in every state, and jobs of flows in every state."""
    one: flows.Parents = {"a": []}
    for queue in ("default", "other"):
        await stage.start_several(3)
        await stage.start(queue=queue, delay=timedelta(hours=1))
        held = [await stage.held(3) for _ in range(4)]
        await stage.complete(held[0])
        await stage.finish(held[1], "failed", held[1].jobs[:2])
        await stage.finish(held[2], "expired", held[2].jobs[:1])
        await quarantine(stage, held[3])
        await stage.run(runs.cancel(await stage.start(queue=queue)))
        worker = await stage.worker()
        for state in ("succeeded", "failed", None):
            await flows.start(stage, one)
            batch = await flows.claim(stage, worker, names=["a"])
            if state is not None:
                await flows.end(stage, batch, state)
        await flows.start_child_runs(stage, batch, 2)
        cancelled = await flows.start(stage, one)
        await stage.run(runs.cancel(cancelled.run))
        await flows.start(stage, flows.DIAMOND)


async def pages(
    stage: Stage, matching: RunFilter, limit: int, *, newer: bool = False, **more: Any
) -> list[tuple[int, str, bool, str]]:
    """Return all matching runs, page by page, as they are listed."""
    told: list[tuple[int, str, bool, str]] = []
    bound = more.pop("after" if newer else "before", 0 if newer else MAX_ID)
    for _ in range(1000):
        side = {"after": bound} if newer else {"before": bound}
        found = await run_search.find_runs(
            stage.together, matching, limit, oldest_first=newer, seconds=0, **side, **more
        )
        assert len(found.positions) <= limit
        lines = await run_search.load_rows(stage.together, matching, found.positions)
        # No run changes meanwhile, so every found run is listed.
        assert [each.run for each in lines] == sorted(
            (each.id for each in found.positions), reverse=True
        )
        lines = lines[::-1] if newer else lines
        told += [(each.run, each.name, each.is_flow, each.state) for each in lines]
        if found.next_id is None:
            return told
        bound = found.next_id
    raise AssertionError("the pages do not end")


ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"name": "work", "after": 5},
    {"name": "f"},
    {"queue": "default", "before": 30},
    {"name": "work", "queue": "other", "after": 20},
)


@pytest.mark.parametrize("crowded", [False, True], ids=["in their places", "among all"])
async def test_run_list_by_state_equals_full_scan(
    stage: Stage, crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(stage)
    if crowded:
        monkeypatch.setattr(store, "MAX_QUEUED_ROWS", 0)
    for states in STATES:
        seen = 0
        for asked in scale(ASKED[:3], ASKED):
            params = {"name": None, "queue": None, "before": MAX_ID, "after": 0, **asked}
            cursor = await stage.watch.execute(
                THROUGH_ALL.encode(), {**params, "states": states and list(states)}
            )
            expected = await cursor.fetchall()
            seen += len(expected)
            matching = RunFilter(params.pop("name"), params.pop("queue"), states)
            # Small windows end before a page is full, and at different places.
            for window, limit in ((2, 2), (1000, 100)):
                monkeypatch.setattr(run_search, "_scan_limit", lambda matching, size=window: size)
                monkeypatch.setattr(store, "MAX_SCAN_ROWS", window)
                assert await pages(stage, matching, limit, **params) == expected
                found = await pages(stage, matching, limit, newer=True, **params)
                assert found[::-1] == expected
        assert seen, states


async def test_run_list_with_known_kind_returns_same_runs(stage: Stage) -> None:
    await fill(stage)
    for name, kind in (("work", "task"), ("f", "flow")):
        known = await pages(stage, RunFilter(name=name, kind=kind), 3)
        assert known == await pages(stage, RunFilter(name=name), 3)
        assert known
    assert await pages(stage, RunFilter(name="work", kind="flow"), 3) == []


async def test_run_list_text_search_covers_names_keys_and_values(
    stage: Stage,
) -> None:
    held = await stage.held(1)
    [by_error] = held.jobs
    await stage.finish(held, "failed")
    await stage.sql('update rota.outcomes set error = \'{"message": "too weighty"}\'')
    by_name = await stage.start("Weigh")
    by_key = await stage.start("work", key="weight-1")
    by_input = await stage.start("work", args='{"what": "WEIGHED"}')
    # Random bytes: a long text that compresses well would be stored short.
    long = {"what": "weighed", "long": random.randbytes(9000).hex()}
    too_long = await stage.start("work", args=json.dumps(long))

    async def ids(**asked: Any) -> set[int]:
        return {each[0] for each in await pages(stage, RunFilter(**asked), 2)}

    assert await ids(text="weigh") == {by_name, by_key}
    assert await ids(text="WEIGH", search_values=True) == {by_name, by_key, by_input, by_error}
    assert await ids(text="weigh", search_values=True, states=("failed",)) == {by_error}
    assert too_long not in await ids(text="weigh", search_values=True)
    assert await ids(text="100%", search_values=True) == set()


async def test_run_list_by_key_returns_last_run_of_each_task(stage: Stage) -> None:
    one = await stage.start("one", key="k")
    two = await stage.start("two", key="k", queue="other")
    await stage.start("two", key="another")
    await stage.run(runs.cancel(two))

    async def ids(**asked: Any) -> list[int]:
        return [each[0] for each in await pages(stage, RunFilter(key="k", **asked), 1)]

    assert await ids() == [two, one]
    assert await ids(name="one") == [one]
    assert await ids(queue="other") == [two]
    assert await ids(states=("cancelled",)) == [two]
    assert await ids(text="tw") == [two]


async def test_run_list_by_time_is_exact(stage: Stage) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    await stage.sql(
        "insert into rota.jobs (id, created, priority, task, queue, args)"
        " select nextval('rota.ids') * 7, %s + n * interval '1 min', 0, 'work', 'default', '{}'"
        "   from generate_series(0, 299) as n",
        start,
    )
    await stage.sql(
        "insert into rota.queued (seq, job, priority, queue, task)"
        " select id, id, priority, queue, task from rota.jobs"
    )
    # Two runs slightly out of order: ids are drawn before rows are written.
    await stage.sql("update rota.jobs set created = created - interval '3 min' where id = 100 * 7")
    await stage.sql("update rota.jobs set created = created + interval '3 min' where id = 50 * 7")
    rows = await stage.sql("select id, created from rota.jobs order by id desc")
    for since, until in ((None, 97), (40, None), (48, 53), (96, 99), (0, 300), (400, None)):
        matching = RunFilter(
            since=None if since is None else start + timedelta(minutes=since),
            until=None if until is None else start + timedelta(minutes=until),
        )
        expected = [
            id
            for id, created in rows
            if (matching.since is None or created >= matching.since)
            and (matching.until is None or created < matching.until)
        ]
        assert [each[0] for each in await pages(stage, matching, 9)] == expected
    assert await stage.run(store.last_id_before(start)) == [0]


async def test_run_list_by_time_without_runs_is_empty(stage: Stage) -> None:
    assert await stage.run(store.last_id_before(datetime(2026, 1, 1, tzinfo=UTC))) == [0]
    found = await run_search.find_runs(stage.together, RunFilter(since=datetime.now(UTC)), 5)
    assert found == RunSearchResult([], False, None)


@pytest.mark.parametrize("statement", ["run_list/scan_all", "run_list/scan_states"])
def test_run_list_reversed_statement_is_mirrored(statement: str) -> None:
    """The reversed statement differs only in the direction."""

    def bare(statement: str) -> str:
        text = re.sub(r"--.*| /\*\|.*?\*/", "", load(statement, "rota"))
        text = re.sub(r"(order by \w+\.\w+) (?:asc|desc)", r"\1", text)
        for older, newer in (
            ("greatest (", "least ("),
            ("max (", "min ("),
            (">= coalesce(", "<= coalesce("),
            (">= (select", "<= (select"),
            ("from edge), 0)", "from edge), 9223372036854775807)"),
        ):
            text = text.replace(older, newer)
        return re.sub(r"\s+", " ", text)

    assert load(statement, "rota") != load(statement + REVERSED, "rota")
    assert " desc" not in re.sub(r"--.*", "", load(statement + REVERSED, "rota"))
    assert bare(statement) == bare(statement + REVERSED)


async def explained(stage: Stage, query: Query[ListPosition]) -> Any:
    text, names = positional(query.statement, stage.schema)
    values = sql.SQL(", ").join(sql.Literal(query.params[name]) for name in names)
    await stage.watch.execute(b"prepare listed as " + text.encode(), prepare=False)
    cursor = await stage.watch.execute(
        sql.SQL("explain (analyze, format json) execute listed ({})").format(values), prepare=False
    )
    [[raw]] = await cursor.fetchall()
    await stage.watch.execute("deallocate listed")
    return (raw if isinstance(raw, list) else json.loads(raw))[0]["Plan"]


async def test_run_list_scan_reads_no_more_than_its_window(own_stage: Stage) -> None:
    await own_stage.sql("set statement_timeout = 0")
    await own_stage.sql(
        "insert into rota.jobs (id, priority, task, queue, args)"
        " select nextval('rota.ids'), 0, 'work', 'default', '{}' from generate_series(1, %s)",
        MANY,
    )
    await own_stage.sql(
        "insert into rota.outcomes (job, state, attempt) select id, 'succeeded', 1 from rota.jobs"
    )
    await fill(own_stage)
    await own_stage.sql("analyze")
    window = 500
    for states in STATES:
        for name in (None, "rare"):
            for newer in (False, True):
                how = {"oldest_first": newer}
                matching = RunFilter(name=name, states=states)
                queries = [store.scan_all(matching, MAX_ID, 0, 51, window, **how)]
                if states is not None:
                    queries.append(store.scan_states(matching, MAX_ID, 0, 51, window, **how))
                for query in queries:
                    found = list(scans(await explained(own_stage, query)))
                    for table in ("jobs", "outcomes", "runs"):
                        read = sum(scan.read for scan in found if scan.table == table)
                        assert read <= 3 * window + 10, f"{query}: {table}: {found}"
