"""Signals to a run: one payload for a name, the first one, for ever; waiting jobs are woken."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from rota.store import runs, signals, timers

from . import flows
from .durably import (
    again,
    asleep,
    come_due,
    known,
    lie_down,
    quarantine,
    said,
    say,
    sleep,
    wait,
)
from .past import Past
from .stage import Stage


async def in_ready(stage: Stage) -> list[int]:
    return await stage.sql("select job from rota.queued order by seq")


# Answers


async def test_the_first_is_sent_and_stands_for_good(stage: Stage) -> None:
    run = await stage.start()

    assert await say(stage, run, payload='"first"') == "sent"
    assert await say(stage, run, payload='"second"') == "known"
    assert await say(stage, run, "other", "2") == "sent"

    assert await said(stage, run) == '"first"'
    assert await said(stage, run, "other") == "2"


async def test_there_may_be_no_such_run(stage: Stage) -> None:
    assert await say(stage, 10**9) is None
    assert await stage.sql("select * from rota.signals") == []


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "expired"])
async def test_a_run_that_has_ended_is_told_nothing(stage: Stage, state: str) -> None:
    run = await Past(stage).ended(0, state)

    assert await say(stage, run) == "ended"
    assert await said(stage, run) is None


async def test_what_was_said_is_there_when_a_run_that_ended_is_tried_again(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"))
    await say(stage, batch.jobs[0], payload='"kept"')
    batch = await again(stage)
    await stage.finish(batch, "failed")
    assert await say(stage, batch.jobs[0], "late") == "ended"
    await stage.run(runs.retry(batch.jobs[0]))

    batch = await again(stage)

    assert [each.payload for each in await known(stage, batch)] == ['"kept"']
    assert await say(stage, batch.jobs[0]) == "known"
    assert await say(stage, batch.jobs[0], "late") == "sent"


@pytest.mark.parametrize("place", ["queued", "running", "sleeping", "quarantined"])
async def test_a_run_is_told_wherever_it_is_and_stays_there_if_it_does_not_wait(
    stage: Stage, place: str
) -> None:
    if place == "sleeping":
        batch = await asleep(stage, sleep(60))
    else:
        batch = await stage.held(1)
    if place == "queued":
        await stage.give_back(batch)
    if place == "quarantined":
        await quarantine(stage, batch)

    assert await say(stage, batch.jobs[0]) == "sent"

    assert await stage.place(batch.jobs[0]) == place


@pytest.mark.parametrize("name", ["", "x" * 201, None])
async def test_a_name_has_one_to_two_hundred_letters(stage: Stage, name: Any) -> None:
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
async def test_sql_alone_can_send_one(stage: Stage, call: str, payload: str) -> None:
    batch = await asleep(stage, wait("go"))

    assert await stage.one(f"select {call}", batch.jobs[0]) == "sent"

    [found] = await known(stage, await again(stage))
    assert (found.has_signal, found.payload) == (True, payload)


# Woken jobs


async def test_who_waits_for_it_is_woken_and_given_it(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"), wait("other", position=2), wait("go", 2, 3))
    bystander = await asleep(stage, wait("other"))
    other_run = await asleep(stage, wait("go"))

    assert await say(stage, batch.jobs[0], payload="[1]") == "sent"

    assert await in_ready(stage) == batch.jobs
    assert [await stage.place(each.jobs[0]) for each in (bystander, other_run)] == ["sleeping"] * 2
    found = await known(stage, await again(stage))
    assert [(each.name, each.number, each.payload) for each in found] == [
        ("go", 1, "[1]"),
        ("other", 1, None),
        ("go", 2, "[1]"),
    ]


async def test_one_that_has_waited_for_it_before_and_sleeps_now_sleeps_on(stage: Stage) -> None:
    batch = await asleep(stage, wait("go", seconds=60))
    await come_due(stage)
    await stage.run(timers.wake(10))
    batch = await again(stage)
    await lie_down(stage, batch, sleep(60))

    assert await say(stage, batch.jobs[0]) == "sent"

    assert await stage.place(batch.jobs[0]) == "sleeping"


async def test_a_job_that_will_be_retried_sleeps_on(stage: Stage) -> None:
    batch = await asleep(stage, wait("go", seconds=60))
    await come_due(stage)
    await stage.run(timers.wake(10))
    await stage.retry(await again(stage), delay=60)

    assert await say(stage, batch.jobs[0]) == "sent"

    assert await stage.place(batch.jobs[0]) == "sleeping"


async def test_a_woken_job_is_what_it_was_and_queues_behind_the_others(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"))
    await stage.sql("update rota.sleeping set attempt = 4, lost = 2, priority = 0")
    others = await stage.start_several(2)

    await say(stage, batch.jobs[0])

    assert await in_ready(stage) == [*others, *batch.jobs]
    assert await stage.sql(
        "select attempt, lost, queue, task from rota.queued where job = %s", batch.jobs[0]
    ) == [(4, 2, "default", "work")]


async def test_workers_are_told_of_who_was_woken_and_of_nothing_else(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"))
    heard: list[str] = []
    listener = await stage.connect()
    listener.add_notify_handler(lambda notice: heard.append(notice.payload))
    await stage.sql('listen "rota.wake"', on=listener)

    await say(stage, batch.jobs[0], "nobody waits for this")
    await stage.sql("select 1", on=listener)
    assert heard == []
    await say(stage, batch.jobs[0])

    await stage.sql("select 1", on=listener)
    assert heard == ["default"]


async def test_it_wakes_when_its_transaction_commits_and_not_if_it_does_not(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"))
    sender = await stage.connect()

    async with sender.transaction(force_rollback=True):
        assert await say(stage, batch.jobs[0], on=sender) == "sent"
        assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await said(stage, batch.jobs[0]) is None

    assert await say(stage, batch.jobs[0]) == "sent"


# Runs of many jobs


async def test_all_jobs_of_a_run_that_wait_are_woken(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": [], "c": []})
    worker = await stage.worker()
    for name in ("a", "b"):
        await lie_down(stage, await flows.claim_only(stage, worker, name), wait("go"))
    await lie_down(stage, await flows.claim_only(stage, worker, "c"), wait("other"))

    assert await say(stage, laid.run) == "sent"

    assert await in_ready(stage) == [laid["a"], laid["b"]]
    assert await stage.place(laid["c"]) == "sleeping"


async def test_the_id_of_a_job_stands_for_its_run(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": []})
    worker = await stage.worker()
    await lie_down(stage, await flows.claim_only(stage, worker, "a"), wait("go"))

    assert await say(stage, laid["b"]) == "sent"
    assert await say(stage, laid.run) == "known"

    assert laid["a"] in await in_ready(stage)
    assert await stage.sql("select run from rota.signals") == [laid.run]


async def test_a_run_is_over_when_all_of_it_is(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": []})
    worker = await stage.worker()
    await flows.run_one(stage, worker, "a")
    assert await say(stage, laid["a"], "one") == "sent"

    await flows.run_one(stage, worker, "b")

    assert await say(stage, laid["a"], "two") == "ended"
    assert await say(stage, laid.run, "two") == "ended"


async def test_a_call_has_its_own_signals(stage: Stage) -> None:
    """A signal to the caller's run is not a signal to its child runs."""
    caller = await stage.held(1)
    [calls] = await flows.call(stage, caller, 1)
    [called] = await stage.one("select jobs from rota.runs where id = %s", calls.run)
    batch = await flows.claim(stage, await stage.worker())
    assert batch.jobs == [called]
    await lie_down(stage, batch, wait("go"))

    await say(stage, caller.jobs[0])
    assert await stage.place(called) == "sleeping"

    await say(stage, called)
    assert await stage.place(called) == "queued"


# Reads of a payload


async def test_looking_finds_what_was_said_and_not_who_waits(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"))
    run = batch.jobs[0]
    assert await said(stage, run) is None

    await say(stage, run, payload=json.dumps({"ü": None}))

    assert json.loads(await said(stage, run) or "") == {"ü": None}
    assert await stage.run(signals.read_payload(run + 1, "go")) == []


async def test_who_has_waited_is_noted_once(stage: Stage) -> None:
    batch = await asleep(stage, wait("go", seconds=60))
    await come_due(stage)
    await stage.run(timers.wake(10))
    batch = await again(stage)
    await lie_down(stage, batch, wait("go", seconds=60), wait("go", 2, 2))

    assert await stage.sql("select jobs from rota.signals") == [batch.jobs]
