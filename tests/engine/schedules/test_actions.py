"""Scheduled actions: schedules created at run time that call handlers, and actions without a handler."""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import ArgumentError, Context, Retry, Rota
from rota.errors import DefinitionError
from rota.testing import Harness
from support.scale import scale

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def test_action_schedule_calls_handler_of_its_type(rota_harness: Harness) -> None:
    app = rota_harness.app
    seen: list[tuple[str, list[str], datetime | None]] = []

    @app.action("mail", queue="mails", retry=Retry(max_attempts=7))
    async def mail(ctx: Context, subject: str, to: list[str]) -> str:
        seen.append((subject, to, ctx.scheduled_for))
        return "sent"

    await rota_harness.clock.set(NOON)
    config = {"subject": "hello", "to": ["ada"]}
    await app.schedules.create("x", action="mail", config=config, every=HOUR, tenant="acme")
    await rota_harness.clock.advance(HOUR)
    await rota_harness.run_until_idle()

    assert seen == [("hello", ["ada"], NOON + HOUR)]
    found = await app.schedules.get("x")
    assert (found.kind, found.target, found.input) == ("action", "mail", config)
    [tick] = await app.schedules.ticks("x")
    assert (tick.outcome, await app.run(tick.run or 0).result()) == ("succeeded", "sent")
    assert app.registry.tasks["action.mail"].policy.queue == "mails"
    assert app.registry.tasks["action.mail"].policy.retry.max_attempts == 7


async def test_action_config_is_validated_by_known_handler(rota_app: Rota) -> None:
    @rota_app.action("mail")
    async def mail(to: list[str]) -> None: ...

    with pytest.raises(ArgumentError, match=r"schedule 'x': .*Expected `array`, got `str`"):
        await rota_app.schedules.create("x", action="mail", config={"to": "ada"}, every=60)
    with pytest.raises(ArgumentError, match="takes no argument 'too'"):
        await rota_app.schedules.create("x", action="mail", config={"too": []}, every=60)

    await rota_app.schedules.create("x", action="mail", config={"to": []}, every=60)
    await rota_app.schedules.update("x", config={"to": ["ada"]})
    with pytest.raises(ArgumentError, match="Expected `array`"):
        await rota_app.schedules.update("x", config={"to": "ada"})
    assert (await rota_app.schedules.get("x")).input == {"to": ["ada"]}


async def test_action_of_unknown_type_is_kept_and_logged_once(
    rota_harness: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.engine.scheduling.scheduler.SWEEP_SECONDS", 0.05)
    monkeypatch.setattr("rota.engine.scheduling.scheduler.IDLE_SWEEP_SECONDS", 0.05)
    app = rota_harness.app

    @app.task
    async def beat() -> None: ...

    await app.schedules.create("fax", action="fax", config={"to": 7}, every=0.1)
    await app.schedules.create("beat", beat, every=0.1, overlap="allow")
    with caplog.at_level(logging.WARNING, "rota"):
        async with app.worker(), asyncio.timeout(60):
            while "'fax'" not in caplog.text or len(await app.schedules.ticks("beat")) < 8:
                await asyncio.sleep(0.02)

    told = [each.getMessage() for each in caplog.records if "fax" in each.getMessage()]
    assert told == [
        "schedule 'fax' is due, but no worker knows action 'fax'; it starts no runs until one does"
    ]
    found = await app.schedules.get("fax")
    assert (found.state, found.has_worker, found.failures, found.missed) == ("active", False, 0, 0)
    assert await app.schedules.ticks("fax") == []

    @app.action("fax")
    async def fax(to: int) -> None: ...

    async with app.worker():
        assert (await app.schedules.get("fax")).has_worker
        async with asyncio.timeout(60):
            while not await app.schedules.ticks("fax"):
                await asyncio.sleep(0.02)


async def test_action_of_unknown_type_does_not_delay_other_schedules(rota_app: Rota) -> None:
    """Every poll reports the unknown action as due, and no worker can run it."""

    @rota_app.task
    async def beat() -> None: ...

    await rota_app.schedules.create("fax", action="fax", every=0.1)
    await rota_app.schedules.create("beat", beat, every=0.4, overlap="allow")
    async with rota_app.worker(), asyncio.timeout(60):
        while len(ticks := await rota_app.schedules.ticks("beat")) < scale(4, 10):
            await asyncio.sleep(0.05)

    late = sorted(each.late_seconds for each in ticks)
    assert late[len(late) // 2] < scale(math.inf, 0.2), late


# Built-in actions


async def test_built_in_actions_exist_only_when_enabled(rota_app: Rota) -> None:
    @rota_app.task
    async def report() -> None: ...

    assert not [name for name in rota_app.registry.tasks if name.startswith("action.")]

    rota_app.actions("task", "flow", "webhook", queue="actions")

    assert {
        name: task.policy.queue
        for name, task in rota_app.registry.tasks.items()
        if name != "report"
    } == {"action.task": "actions", "action.flow": "actions", "action.webhook": "actions"}
    with pytest.raises(
        DefinitionError, match="no built-in action 'shell', but task, flow, webhook"
    ):
        rota_app.actions("shell")


async def test_task_action_has_result_of_started_task(rota_harness: Harness) -> None:
    app = rota_harness.app
    app.actions("task")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task(retry=Retry(max_attempts=1))
    async def fails() -> None:
        raise ValueError("no")

    await app.schedules.create(
        "x", action="task", config={"task": "double", "input": {"number": 21}}, every=HOUR
    )
    await app.schedules.create("y", action="task", config={"task": "fails"}, every=HOUR)
    good, bad = await app.schedules.trigger("x"), await app.schedules.trigger("y")
    await rota_harness.run_until_idle()

    assert await good.result() == 42
    assert await bad.status() == "failed"  # no retry: the task's own policy applies


async def test_flow_action_runs_the_flow(rota_harness: Harness) -> None:
    app = rota_harness.app
    app.actions("flow")
    flow = app.flow("etl")

    @flow.task
    async def extract(day: str) -> str:
        return day.upper()

    await app.schedules.create(
        "x", action="flow", config={"flow": "etl", "input": {"day": "monday"}}, every=HOUR
    )
    run = await app.schedules.trigger("x")
    await rota_harness.run_until_idle()

    assert await run.result() == {"extract": "MONDAY"}


@pytest.mark.parametrize(
    ("action", "config", "reason"),
    [
        ("task", {"task": "nothing"}, "no task called 'nothing'"),
        ("task", {"task": "action.task", "input": {}}, "no task called 'action.task'"),
        ("task", {"task": "double", "input": {"number": "x"}}, "Expected `int`"),
        ("task", {"task": "double"}, "number"),
        ("flow", {"flow": "double"}, "no flow called 'double'"),
        ("webhook", {"url": "https://hooks.example.com/"}, "webhooks are off: set ROTA_WEBHOOK"),
        ("webhook", {"url": "https://x/", "method": "BREW"}, "method is one of"),
        ("webhook", {"url": "https://x/", "headers": {"Host": "y"}}, "header 'Host' is Rota's own"),
    ],
)
async def test_built_in_action_invalid_config_is_refused_at_creation(
    action: str, config: dict[str, Any], reason: str
) -> None:
    app = Rota("postgresql://nobody.invalid/nothing")
    app.actions("task", "flow", "webhook")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    with pytest.raises(ArgumentError, match=f"schedule 'x': .*{reason}"):
        await app.schedules.create("x", action=action, config=config, every=60)


async def test_action_handler_may_have_name_of_built_in_action(rota_app: Rota) -> None:
    @rota_app.action("task")
    async def task(anything: int) -> None: ...

    await rota_app.schedules.create("x", action="task", config={"anything": 1}, every=60)

    assert (await rota_app.schedules.get("x")).input == {"anything": 1}
