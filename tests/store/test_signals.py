"""Signals to a run: one payload for a name, the first one, for ever; waiting jobs are woken."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from rota.store import runs, signals, timers
from support import flows
from support.journals import (
    claim_queued,
    make_timers_due,
    quarantine,
    read_journal,
    read_signal,
    send_signal,
    sleep,
    start_suspended,
    suspend_job,
    wait,
)
from support.old_runs import OldRuns
from support.stage import Stage


async def queued_jobs(stage: Stage) -> list[int]:
    return await stage.sql("select job from rota.queued order by seq")


# Answers


async def test_signal_first_payload_of_a_name_is_kept(stage: Stage) -> None:
    run = await stage.start()

    assert await send_signal(stage, run, payload='"first"') == "sent"
    assert await send_signal(stage, run, payload='"second"') == "known"
    assert await send_signal(stage, run, "other", "2") == "sent"

    assert await read_signal(stage, run) == '"first"'
    assert await read_signal(stage, run, "other") == "2"


async def test_signal_unknown_run_returns_none(stage: Stage) -> None:
    assert await send_signal(stage, 10**9) is None
    assert await stage.sql("select * from rota.signals") == []


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "expired"])
async def test_signal_ended_run_returns_ended(stage: Stage, state: str) -> None:
    run = await OldRuns(stage).ended(0, state)

    assert await send_signal(stage, run) == "ended"
    assert await read_signal(stage, run) is None


async def test_signal_survives_retry_of_the_run(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"))
    await send_signal(stage, batch.jobs[0], payload='"kept"')
    batch = await claim_queued(stage)
    await stage.finish(batch, "failed")
    assert await send_signal(stage, batch.jobs[0], "late") == "ended"
    await stage.run(runs.retry(batch.jobs[0]))

    batch = await claim_queued(stage)

    assert [each.payload for each in await read_journal(stage, batch)] == ['"kept"']
    assert await send_signal(stage, batch.jobs[0]) == "known"
    assert await send_signal(stage, batch.jobs[0], "late") == "sent"


@pytest.mark.parametrize("place", ["queued", "running", "sleeping", "quarantined"])
async def test_signal_to_job_not_waiting_leaves_state_unchanged(stage: Stage, place: str) -> None:
    if place == "sleeping":
        batch = await start_suspended(stage, sleep(60))
    else:
        batch = await stage.held(1)
    if place == "queued":
        await stage.give_back(batch)
    if place == "quarantined":
        await quarantine(stage, batch)

    assert await send_signal(stage, batch.jobs[0]) == "sent"

    assert await stage.place(batch.jobs[0]) == place


@pytest.mark.parametrize("name", ["", "x" * 201, None])
async def test_signal_name_with_invalid_length_is_refused(stage: Stage, name: Any) -> None:
    run = await stage.start()

    with pytest.raises(psycopg.Error) as caught:
        await stage.sql("select rota.signal(%s, %s, '1')", run, name)

    assert caught.value.sqlstate == "RT003"
    assert await stage.sql("select * from rota.signals") == []


@pytest.mark.parametrize(
    ("call", "payload"),
    [
        ("rota.signal(%s, 'go')", "null"),
        ("rota.signal(%s, 'go', null)", "null"),
        ("rota.signal(run => %s, name => 'go', payload => '[1, {}]')", "[1, {}]"),
    ],
)
async def test_signal_sql_function_sends_payload(stage: Stage, call: str, payload: str) -> None:
    batch = await start_suspended(stage, wait("go"))

    assert await stage.one(f"select {call}", batch.jobs[0]) == "sent"

    [found] = await read_journal(stage, await claim_queued(stage))
    assert (found.has_signal, found.payload) == (True, payload)


# Woken jobs


async def test_signal_wakes_waiting_job_with_payload(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"), wait("other", position=2), wait("go", 2, 3))
    bystander = await start_suspended(stage, wait("other"))
    other_run = await start_suspended(stage, wait("go"))

    assert await send_signal(stage, batch.jobs[0], payload="[1]") == "sent"

    assert await queued_jobs(stage) == batch.jobs
    assert [await stage.place(each.jobs[0]) for each in (bystander, other_run)] == ["sleeping"] * 2
    found = await read_journal(stage, await claim_queued(stage))
    assert [(each.name, each.number, each.payload) for each in found] == [
        ("go", 1, "[1]"),
        ("other", 1, None),
        ("go", 2, "[1]"),
    ]


async def test_signal_does_not_wake_job_sleeping_after_its_wait(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go", seconds=60))
    await make_timers_due(stage)
    await stage.run(timers.wake(10))
    batch = await claim_queued(stage)
    await suspend_job(stage, batch, sleep(60))

    assert await send_signal(stage, batch.jobs[0]) == "sent"

    assert await stage.place(batch.jobs[0]) == "sleeping"


async def test_signal_does_not_wake_job_sleeping_until_retry(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go", seconds=60))
    await make_timers_due(stage)
    await stage.run(timers.wake(10))
    await stage.retry(await claim_queued(stage), delay=60)

    assert await send_signal(stage, batch.jobs[0]) == "sent"

    assert await stage.place(batch.jobs[0]) == "sleeping"


async def test_signal_woken_job_keeps_attempt_and_is_queued_last(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"))
    await stage.sql("update rota.sleeping set attempt = 4, crashes = 2, priority = 0")
    others = await stage.start_several(2)

    await send_signal(stage, batch.jobs[0])

    assert await queued_jobs(stage) == [*others, *batch.jobs]
    assert await stage.sql(
        "select attempt, crashes, queue, task from rota.queued where job = %s", batch.jobs[0]
    ) == [(4, 2, "default", "work")]


async def test_signal_notifies_workers_only_of_woken_jobs(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"))
    heard: list[str] = []
    listener = await stage.connect()
    listener.add_notify_handler(lambda notice: heard.append(notice.payload))
    await stage.sql('listen "rota.wake"', on=listener)

    await send_signal(stage, batch.jobs[0], "nobody waits for this")
    await stage.sql("select 1", on=listener)
    assert heard == []
    await send_signal(stage, batch.jobs[0])

    await stage.sql("select 1", on=listener)
    assert heard == ["default"]


async def test_signal_wakes_job_only_after_commit(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"))
    sender = await stage.connect()

    async with sender.transaction(force_rollback=True):
        assert await send_signal(stage, batch.jobs[0], on=sender) == "sent"
        assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await read_signal(stage, batch.jobs[0]) is None

    assert await send_signal(stage, batch.jobs[0]) == "sent"


# Runs of many jobs


async def test_signal_to_flow_wakes_all_waiting_jobs(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": [], "c": []})
    worker = await stage.worker()
    for name in ("a", "b"):
        await suspend_job(stage, await flows.claim_only(stage, worker, name), wait("go"))
    await suspend_job(stage, await flows.claim_only(stage, worker, "c"), wait("other"))

    assert await send_signal(stage, laid.run) == "sent"

    assert await queued_jobs(stage) == [laid["a"], laid["b"]]
    assert await stage.place(laid["c"]) == "sleeping"


async def test_signal_to_job_id_is_sent_to_its_run(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": []})
    worker = await stage.worker()
    await suspend_job(stage, await flows.claim_only(stage, worker, "a"), wait("go"))

    assert await send_signal(stage, laid["b"]) == "sent"
    assert await send_signal(stage, laid.run) == "known"

    assert laid["a"] in await queued_jobs(stage)
    assert await stage.sql("select run from rota.signals") == [laid.run]


async def test_signal_to_flow_returns_ended_after_its_last_job(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": []})
    worker = await stage.worker()
    await flows.run_one(stage, worker, "a")
    assert await send_signal(stage, laid["a"], "one") == "sent"

    await flows.run_one(stage, worker, "b")

    assert await send_signal(stage, laid["a"], "two") == "ended"
    assert await send_signal(stage, laid.run, "two") == "ended"


async def test_signal_to_parent_does_not_wake_child_run(stage: Stage) -> None:
    """A signal to the caller's run is not a signal to its child runs."""
    caller = await stage.held(1)
    [calls] = await flows.start_child_runs(stage, caller, 1)
    [called] = await stage.one("select jobs from rota.runs where id = %s", calls.run)
    batch = await flows.claim(stage, await stage.worker())
    assert batch.jobs == [called]
    await suspend_job(stage, batch, wait("go"))

    await send_signal(stage, caller.jobs[0])
    assert await stage.place(called) == "sleeping"

    await send_signal(stage, called)
    assert await stage.place(called) == "queued"


# Reads of a payload


async def test_read_payload_returns_only_a_sent_payload(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"))
    run = batch.jobs[0]
    assert await read_signal(stage, run) is None

    await send_signal(stage, run, payload=json.dumps({"ü": None}))

    assert json.loads(await read_signal(stage, run) or "") == {"ü": None}
    assert await stage.run(signals.read_payload(run + 1, "go")) == []


async def test_signal_row_lists_a_waiting_job_once(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go", seconds=60))
    await make_timers_due(stage)
    await stage.run(timers.wake(10))
    batch = await claim_queued(stage)
    await suspend_job(stage, batch, wait("go", seconds=60), wait("go", 2, 2))

    assert await stage.sql("select jobs from rota.signals") == [batch.jobs]
