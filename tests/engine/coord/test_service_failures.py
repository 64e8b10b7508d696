"""Failing services: they are retried with growing delays, for every kind of error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from rota import Rota
from rota.coord import service_runner
from rota.errors import ArgumentError
from rota.model.service import ServiceDefinition
from rota.store import services
from support.service_helpers import outcomes, record_iterations, run_sql, until


async def test_service_failed_iteration_is_retried_with_growing_delay(rota_dsn: str) -> None:
    times = []

    async def broken() -> NoReturn:
        times.append(time.monotonic())
        raise ValueError("no feed")

    async with Rota(rota_dsn) as app, Rota(rota_dsn) as other:
        here, elsewhere = record_iterations(app), record_iterations(other)
        for each in (app, other):
            each.service("broken", every=0.05)(broken)
        async with app.services():
            await until(lambda: len(here) == 2)
        async with other.services():
            await until(lambda: elsewhere)
        rows = await run_sql(
            app,
            "select failures, retry_at > now() + interval '3 s', error->>'type', error->>'message',"
            " error->>'traceback' like '%no feed%' from rota.services join rota.iterations on number = 3",
        )
    assert times[1] - times[0] >= 1
    assert times[2] - times[1] >= 2
    assert rows == [(3, True, "ValueError", "no feed", True)]


def test_service_definition_pause_grows_with_failures() -> None:
    often = ServiceDefinition("often", lambda: None, 0.5, 10.0)
    rarely = ServiceDefinition("rarely", lambda: None, 600.0, 10.0)
    ever = ServiceDefinition("ever", lambda: None, None, 10.0)
    assert [
        often.pause_seconds(0, 0.2),
        rarely.pause_seconds(0, 10),
        ever.pause_seconds(0, 3600),
    ] == [0.3, 590, 1]
    assert [often.pause_seconds(failures, 0.2) for failures in (1, 2, 3, 7, 50)] == [
        1,
        2,
        4,
        60,
        60,
    ]
    assert rarely.pause_seconds(7, 1) == 599
    assert [often.count_failures(2, "succeeded", 1), often.count_failures(2, "failed", 1)] == [0, 3]
    # An iteration that ran for long enough resets the count of failures.
    assert [often.count_failures(2, "failed", 61), ever.count_failures(2, "stopped", 61)] == [1, 0]
    assert [ever.count_failures(2, "stopped", 1), ever.count_failures(2, "lost", 1)] == [2, 2]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def throw(error: BaseException) -> Callable[[], Any]:
    def plain() -> NoReturn:
        raise error

    return plain


def throw_async(error: BaseException) -> Callable[[], Any]:
    async def coroutine() -> NoReturn:
        raise error

    return coroutine


STRANGE = {
    "cannot be stored": ValueError("a\0b\ud800"),
    "cannot be said": UnprintableError(),
    "wants to leave": SystemExit(3),
    "cancelled by itself": asyncio.CancelledError(),
    "is at an end": StopIteration(),
}


@pytest.mark.parametrize("what", STRANGE)
@pytest.mark.parametrize("how", [throw, throw_async])
async def test_service_any_error_is_recorded_and_retried(
    rota_app: Rota, what: str, how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServiceDefinition, "backoff_seconds", lambda self, failures: 0.0)
    heard = record_iterations(rota_app)
    rota_app.service("strange", every=0.05)(how(STRANGE[what]))
    async with rota_app.services():
        await until(lambda: len(heard) >= 2)
    # The third may have begun when the services were stopped.
    came_to = [each.outcome for each in heard]
    assert came_to[:2] == ["failed", "failed"]
    assert came_to[2:] in ([], ["stopped"], ["failed"])
    assert (await outcomes(rota_app))[:2] == ["failed", "failed"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()])
async def test_service_base_exception_in_thread_is_recorded_as_failed(
    rota_app: Rota, error: Any
) -> None:
    heard = record_iterations(rota_app)
    rota_app.service("strange", every=0.05)(throw(error))
    async with rota_app.services():
        await until(lambda: heard)
    assert await outcomes(rota_app) == ["failed"]


async def test_service_forever_that_returns_restarts_after_a_pause(
    rota_app: Rota,
) -> None:
    times: list[float] = []
    rota_app.service("tail", forever=True)(lambda: times.append(time.monotonic()))
    async with rota_app.services():
        await until(lambda: len(times) == 2)
    assert times[1] - times[0] >= 1


async def test_service_error_between_iterations_starts_a_new_term(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_runner, "ERROR_DELAY_SECONDS", 0.5)
    heard = record_iterations(rota_app)
    rota_app.service("filings", every=0.1)(lambda: None)
    async with rota_app.services():
        await until(lambda: heard)
        await run_sql(rota_app, "alter table rota.services rename to mislaid")
        renamed = time.monotonic()
        async with asyncio.timeout(60):
            while (term := (await run_sql(rota_app, "select term from rota.leaders"))[0][0]) < 3:
                await asyncio.sleep(0.005)
        # A pause of 0.5 seconds precedes every new term.
        assert time.monotonic() - renamed >= 0.5 * (term - 1)
        await run_sql(rota_app, "alter table rota.mislaid rename to services")
        count = len(heard)
        await until(lambda: len(heard) > count + 2, within=60)
    assert "service 'filings' stopped unexpectedly" in caplog.text


# Repeated losses


async def test_service_repeated_instance_loss_delays_the_next_start(rota_app: Rota) -> None:
    client = await rota_app.open()
    instance = (await rota_app.coordinator()).identity.instance

    async def take_over_after_a_death() -> tuple[float, int]:
        await run_sql(
            rota_app,
            "insert into rota.leaders (name, term, instance)"
            f" values ('service poison', 1, '{instance}')"
            " on conflict (name) do update set term = leaders.term + 1",
        )
        [(term,)] = await run_sql(rota_app, "select term from rota.leaders")
        [due] = await client.database.run(services.begin_term("poison", 3600, 60, term, instance))
        [again] = await client.database.run(services.begin_term("poison", 3600, 60, term, instance))
        assert again.failures == due.failures  # asking twice does not count the loss twice
        who = {"instance": instance, "host": "", "pid": 1}
        assert await client.database.run(services.begin_iteration("poison", term, who))
        return due.delay, due.failures

    found = [await take_over_after_a_death() for _ in range(10)]
    assert [failures for _, failures in found] == list(range(10))
    waits = [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert [rest for rest, _ in found] == pytest.approx(waits, abs=0.5)
    await run_sql(rota_app, "update rota.iterations set started = now() - interval '2 min'")
    assert await take_over_after_a_death() == (0, 1)


def test_service_too_short_lease_is_refused(rota_dsn: str) -> None:
    with pytest.raises(ArgumentError, match="1 s at least"):
        Rota(rota_dsn).service("filings", every=1, lease=0.5)(lambda: None)
