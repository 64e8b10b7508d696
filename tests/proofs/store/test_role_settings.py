"""A program under many settings of its role."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Retry, Rota
from rota.model.events import JobFinished
from rota.testing import Harness, until_idle
from support.role_settings import change

WHEN = datetime(2026, 3, 29, 1, 30, 0, 250000, tzinfo=UTC)
TEXT = 'né "quoted" \\ back\tslash €uro 😀'

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "serializable": {
        "default_transaction_isolation": "serializable",
        "default_transaction_deferrable": "on",
    },
    "repeatable read": {"default_transaction_isolation": "repeatable read"},
    "read only": {"default_transaction_read_only": "on"},
    "another zone and style": {
        "timezone": "Pacific/Apia",
        "datestyle": "German, DMY",
        "intervalstyle": "sql_standard",
        "bytea_output": "escape",
        "extra_float_digits": "-15",
    },
    "an empty search path": {"search_path": ""},
    "a search path full of traps": {"search_path": "traps, public"},
    "hurry": {"lock_timeout": "1ms", "statement_timeout": "500ms"},
    "sessions that may not be idle": {"idle_session_timeout": "300ms"},
    "no indexes": {
        "enable_indexscan": "off",
        "enable_indexonlyscan": "off",
        "enable_bitmapscan": "off",
        "enable_nestloop": "off",
        "enable_seqscan": "on",
        "plan_cache_mode": "force_custom_plan",
    },
    "no joins but nested loops": {
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_material": "off",
        "enable_memoize": "off",
        "enable_sort": "off",
    },
    "other strings": {"standard_conforming_strings": "off", "escape_string_warning": "off"},
    "no nulls in arrays": {"array_nulls": "off"},
    "another encoding": {"client_encoding": "latin1"},
}


@pytest.mark.parametrize("name", SETTINGS)
async def test_program_result_is_same_under_any_role_settings(
    db: AsyncConnection[Any], rota_dsn: str, name: str
) -> None:
    await db.execute("create schema traps create table jobs () create table ready ()")
    await db.execute("create function traps.clock() returns int language sql as 'select 1'")
    await change(db, SETTINGS[name])

    async with Rota(rota_dsn, poll_interval=0.1) as app, Harness(app) as harness:
        assert await program(app, harness, rota_dsn) == {
            "echoed": [TEXT, WHEN.isoformat()],
            "nothing": None,
            "attempts": 2,
            "same run": True,
            "delayed": 7,
            "copied": [0, 599],
            "cancelled": "cancelled",
            "in a transaction": 5,
        }


async def program(app: Rota, harness: Harness, dsn: str) -> dict[str, Any]:
    @app.task
    async def echo(text: str, when: datetime) -> tuple[str, datetime]:
        return text, when

    @app.task
    async def nothing() -> None:
        return None

    tries: list[int] = []

    @app.task(retry=Retry(max_attempts=2, delay=0.01))
    async def second_time() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise ValueError(TEXT)
        return len(tries)

    @app.task
    def number(n: int, text: str = TEXT) -> int:
        assert text == TEXT
        return n

    unwanted = await number.options(delay=3600).start(1)
    answers: dict[str, Any] = {"cancelled": await unwanted.cancel()}
    async with app.worker():
        echoed = await echo.start(TEXT, WHEN)
        answers["echoed"] = [*_plain(await echoed.result(timeout=60))]
        answers["nothing"] = await (await nothing.start()).result(timeout=60)  # type: ignore[func-returns-value]
        answers["attempts"] = await (await second_time.start()).result(timeout=60)
        first = await number.options(key=TEXT, unique=timedelta(hours=1)).start(1)
        again = await number.options(key=TEXT, unique=timedelta(hours=1)).start(1)
        answers["same run"] = first.id == again.id and not again.created
        later = await number.options(delay=0.05, expires=timedelta(hours=1)).start(7)
        answers["delayed"] = await later.result(timeout=60)
        runs = await app.start_many([number.bind(n, TEXT) for n in range(600)])
        await until_idle(app)
        answers["copied"] = [await runs[n].result(timeout=60) for n in (0, 599)]
        async with await psycopg.AsyncConnection.connect(dsn) as mine:
            await mine.set_read_only(False)
            own = await number.options(on=mine, key="own").start(5)
        answers["in a transaction"] = await own.result(timeout=60)
        await harness.wait_for_event(JobFinished, job=own.id)
    return answers


def _plain(answer: tuple[str, datetime]) -> tuple[str, str]:
    return answer[0], answer[1].isoformat()
