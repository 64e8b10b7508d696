"""Flows run by workers: results reach successors, and waiting jobs are released."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from rota import Flow, Rota, RunFailed
from rota.model.events import RunFinished
from rota.store.connection import ReconnectingConnection
from rota.testing import Harness
from support.queries import ONCE, equals, states, until

# Results


async def test_flow_results_reach_successors_and_run_result(rota_harness: Harness) -> None:
    app = rota_harness.app
    etl = app.flow("etl")

    @etl.task
    async def extract(day: str) -> list[str]:
        return [day, day.upper()]

    @etl.task
    def clean(extract: list[str], suffix: str = "!") -> list[str]:
        return [each + suffix for each in extract]

    @etl.task
    async def count(extract: list[str]) -> int:
        return len(extract)

    @etl.task
    async def report(clean: list[str], count: int, day: str) -> dict[str, Any]:
        return {"day": day, "clean": clean, "count": count}

    run = await etl.start(day="monday")
    assert run.created
    await rota_harness.run_until_idle()

    assert await run.result(timeout=60) == {
        "report": {"day": "monday", "clean": ["monday!", "MONDAY!"], "count": 2}
    }
    assert await run.status() == "succeeded"
    await rota_harness.wait_for_event(RunFinished, run=run.id)


@pytest.mark.parametrize(
    "value",
    [None, 0, "", False, [], {}, 'a "quoted" \\ text', "ü\U0001f600", 2**53, [None], {"a": None}],
)
async def test_flow_result_any_json_value_arrives_unchanged(
    rota_harness: Harness, value: Any
) -> None:
    flow = rota_harness.app.flow("f")
    seen: list[Any] = []

    @flow.task
    async def make(value: Any) -> Any:
        return value

    @flow.task
    async def take(make: Any = "the default") -> None:
        seen.append(make)

    await flow.start(value=value)
    await rota_harness.run_until_idle()

    assert seen == [value]


async def test_flow_result_above_payload_limit_fails_task(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    flow, limit = app.flow("f"), app.settings.payload_limit
    seen: list[int] = []

    @flow.task(retry=ONCE)
    async def make(size: int) -> str:
        return "x" * size

    @flow.task
    async def one(make: str) -> None:
        seen.append(len(make))

    @flow.task
    async def two(make: str) -> None:
        seen.append(len(make))

    fits, larger = await flow.start(size=limit - 2), await flow.start(size=limit - 1)
    await rota_harness.run_until_idle()

    assert seen == [limit - 2] * 2
    assert await fits.status() == "succeeded"
    with pytest.raises(RunFailed, match=r"the result of task 'f\.make'"):
        await larger.result(timeout=60)


async def test_flow_missing_result_is_none_or_parameter_default(rota_harness: Harness) -> None:
    flow = rota_harness.app.flow("f")
    seen: dict[str, Any] = {}

    @flow.task(retry=ONCE)
    async def fails() -> int:
        raise ValueError

    @flow.task(skip_if=lambda: True)
    async def skipped() -> int:
        raise AssertionError

    @flow.task(when="all_done")
    async def none(fails: int | None, skipped: int | None) -> None:
        seen["none"] = (fails, skipped)

    @flow.task(when="all_done")
    async def default(fails: int = 7, skipped: int | None = 8) -> None:
        seen["default"] = (fails, skipped)

    @flow.task(when="none_failed")
    async def one(skipped: int = 9) -> None:
        seen["one"] = skipped

    await flow.start()
    await rota_harness.run_until_idle()

    assert seen == {"none": (None, None), "default": (7, 8), "one": 9}


async def test_skip_if_receives_results_and_input(rota_harness: Harness) -> None:
    flow = rota_harness.app.flow("f")
    ran: list[str] = []

    @flow.task
    async def size() -> int:
        return 5

    def is_above(size: int, limit: int) -> bool:
        return size > limit

    @flow.task(skip_if=is_above)
    async def small() -> None:
        ran.append("async")

    @flow.task(skip_if=is_above)
    def plain(size: int) -> None:
        ran.append(f"plain {size}")

    over, under = await flow.start(limit=3), await flow.start(limit=9)
    await rota_harness.run_until_idle()

    assert sorted(ran) == ["async", "plain 5"]
    assert await over.result(timeout=60) == {"small": None, "plain": None}
    assert await states(rota_harness.app, over.id) == {
        "size": "succeeded",
        "small": "skipped",
        "plain": "skipped",
    }
    assert await under.status() == "succeeded"


async def test_skip_if_raising_fails_its_task(rota_harness: Harness) -> None:
    flow = rota_harness.app.flow("f")

    @flow.task(skip_if=lambda: 1 / 0, retry=ONCE)
    async def never() -> None:
        raise AssertionError

    run = await flow.start()
    await rota_harness.run_until_idle()

    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        await run.result(timeout=60)


async def test_claim_loads_predecessor_results_in_one_query(
    rota_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = rota_harness.app
    flow = app.flow("f")
    asked: list[list[str]] = []
    send = ReconnectingConnection.send

    async def counted(self: ReconnectingConnection, segments: Any) -> Any:
        for query in (query for segment in segments for query in segment):
            if query.statement == "flow/job_results":
                asked.append(query.params["jobs"].strip("{}").split(","))
        return await send(self, segments)

    monkeypatch.setattr(ReconnectingConnection, "send", counted)

    @flow.task
    async def one() -> int:
        return 1

    @flow.task
    async def two() -> int:
        return 2

    for number in range(30):

        async def take(one: int, two: int) -> int:
            return one + two

        flow.task(take, name=f"take{number}")

    run = await flow.start()
    await rota_harness.run_until_idle(concurrency=100)

    assert set((await run.result(timeout=60)).values()) == {3}
    assert all(len(jobs) == len(set(jobs)) == 2 for jobs in asked)
    assert len(asked) <= 3, "one query for all jobs of a claim"


async def test_flow_retry_on_other_worker_replaces_cached_result(
    rota_dsn: str, rota_harness: Harness
) -> None:
    """The middle job is retried on a second worker; the first must not use its cached result."""
    trouble = True
    middles = 0

    def define(app: Rota) -> Flow:
        flow = app.flow("f")

        @flow.task(queue="ends", retry=ONCE)
        async def first() -> int:
            if trouble:
                raise ValueError
            return 1

        @flow.task(queue="middle", after=[first], when="all_done")
        async def middle() -> int:
            nonlocal middles
            middles += 1
            return middles

        @flow.task(queue="ends")
        async def last(middle: int) -> int:
            return middle

        return flow

    flow = define(rota_harness.app)
    async with Rota(rota_dsn, poll_interval=0.05) as second:
        define(second)
        run = await flow.start()
        async with rota_harness.app.worker(queues=["ends"]):
            async with rota_harness.app.worker(queues=["middle"]):
                with pytest.raises(RunFailed):
                    await run.result(timeout=60)
            trouble = False
            async with second.worker(queues=["middle"]):
                await run.retry()
                assert await run.result(timeout=60) == {"last": 2}


# Concurrent transactions


async def test_release_blocked_by_locked_row_runs_after_rollback(
    rota_harness: Harness, rota_dsn: str
) -> None:
    """A transaction locks a waiting job's row. After its rollback the release does not wait for a beat."""
    flow = rota_harness.app.flow("f")

    @flow.task(retry=ONCE)
    async def fails() -> None:
        raise ValueError

    @flow.task(after=[fails])
    async def next_one() -> None: ...

    @flow.task(after=[next_one])
    async def last() -> None: ...

    run = await flow.start()
    async with await psycopg.AsyncConnection.connect(rota_dsn) as theirs:
        await theirs.execute("select from rota.waiting where task = 'f.last' for update")
        async with rota_harness.app.worker():
            await until(lambda: equals(rota_dsn, "select count(*) from rota.pending_releases", 1))
            await theirs.rollback()
            with pytest.raises(RunFailed, match="ValueError"):
                await run.result(timeout=60)


SLOW_KEYS = """
create function public.linger() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.1); return null; end $$;
create trigger linger after insert on rota.keys for each row execute function public.linger()
"""


async def test_start_many_same_keys_in_other_order_does_not_deadlock(
    rota_app: Rota, rota_dsn: str
) -> None:
    flow = rota_app.flow("f")

    @flow.task
    async def only() -> None: ...

    async with await psycopg.AsyncConnection.connect(rota_dsn, autocommit=True) as meddling:
        await meddling.execute(SLOW_KEYS)
    keys = ["a", "b", "c"]

    one, other = await asyncio.gather(
        rota_app.start_many([flow.options(key=key).bind() for key in keys]),
        rota_app.start_many([flow.options(key=key).bind() for key in reversed(keys)]),
    )

    assert [run.id for run in one] == [run.id for run in reversed(other)]
    assert sorted(run.created for run in [*one, *other]) == [False] * 3 + [True] * 3
