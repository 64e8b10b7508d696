"""Invalid starts are refused at once: the error names the field, and no row is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from rota import ArgumentError, Rota, RotaError, Task
from rota.errors import SettingsError


class Point(BaseModel):
    x: int


def nested_list(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def take(rota_app: Rota) -> Task[..., None]:
    @rota_app.task
    async def take(
        text: str = "",
        number: int = 0,
        share: float = 0.0,
        anything: Any = None,
        point: Point | None = None,
    ) -> None: ...

    return take


async def count_rows(dsn: str) -> list[int]:
    tables = ("jobs", "queued", "sleeping", "keys")
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        return [
            (await (await connection.execute(f"select count(*) from rota.{table}")).fetchone())[0]  # type: ignore[index]
            for table in tables
        ]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": "a\x00b"}, r"NUL.*\(in text\)"),
    ({"anything": {"deep": ["\x00"]}}, r"NUL.*\(in anything.deep\[0\]\)"),
    ({"anything": {"a\x00": 1}}, r"NUL.*a key"),
    ({"share": float("nan")}, r"nan is not a number JSON has \(in share\)"),
    ({"anything": [1, float("-inf")]}, r"-inf.*\(in anything\[1\]\)"),
    ({"text": "\ud800"}, r"lone surrogate.*\(in text\)"),
    ({"number": "five"}, r"Expected `int`, got `str` \(in number\)"),
    ({"number": None}, r"Expected `int`, got `null` \(in number\)"),
    ({"nubmer": 5}, r"takes no argument 'nubmer'; it takes text, number"),
    ({"anything": object()}, "no form in JSON"),
    ({"anything": nested_list(5000)}, "nested"),
    ({"anything": "x" * (10 << 20)}, r"10.0 MiB, more than the 256 KiB allowed"),
    ({"point": {"x": "one"}}, "x"),
]


@pytest.mark.parametrize(("arguments", "why"), REFUSED, ids=[why[:20] for _, why in REFUSED])
async def test_start_invalid_argument_is_refused_and_writes_no_row(
    take: Task[..., None], rota_dsn: str, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(ArgumentError, match=why):
        await take.start(**arguments)
    with pytest.raises(ArgumentError, match=why):
        await take.options(key="k", delay=5).start(**arguments)

    assert await count_rows(rota_dsn) == [0, 0, 0, 0]


async def test_start_missing_argument_is_refused_with_its_name(rota_app: Rota) -> None:
    @rota_app.task
    async def needs(path: str) -> None: ...

    with pytest.raises(ArgumentError, match="missing required field `path`"):
        await needs.start()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"delay": 1, "at": datetime.now(UTC)}, "pass one of them, not both"),
        ({"at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is the point
        ({"expires": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"delay": -1}, "negative"),
        ({"priority": 10}, "from 0 to 9"),
        ({"key": ""}, "1 to 500 characters"),
        ({"key": "a\x00"}, "NUL"),
        ({"unique": "open"}, "key="),
        ({"queue": "no spaces"}, "queue's name"),
        ({"timeout": 0}, "above 0"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_start_invalid_option_is_refused(
    take: Task[..., None], how: dict[str, Any], why: str
) -> None:
    with pytest.raises(RotaError, match=why):
        take.options(**how)


async def test_start_large_integers_and_text_round_trip(rota_app: Rota) -> None:
    @rota_app.task
    async def echo(n: int, anything: Any = None) -> Any:
        return [n, anything]

    big = 2**63 - 1
    async with rota_app.worker():
        run = await echo.start(n=big, anything={"n": 2**53 + 1, "text": '"\\ \u2028 é \U0001f600'})
        assert await run.result(timeout=60) == [
            big,
            {"n": 2**53 + 1, "text": '"\\ \u2028 é \U0001f600'},
        ]


async def test_start_many_special_characters_round_trip(rota_app: Rota) -> None:
    r"""Bulk starts use COPY, where \ and line breaks are special."""

    @rota_app.task
    async def echo(text: str) -> str:
        return text

    texts = ["\\", "\\N", "a\tb\nc\rd", '"quoted"', "\\.", "é\u2028\U0001f600", ""] * 100
    async with rota_app.worker():
        runs = await rota_app.start_many([echo.bind(text) for text in texts])
        assert [await run.result(timeout=60) for run in runs] == texts


def test_start_without_database_raises_error_with_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROTA_DATABASE_URL", "DATABASE_URL", "PGHOST", "PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    app = Rota()

    @app.task
    async def anything() -> None: ...

    with pytest.raises(SettingsError, match=r"set ROTA_DATABASE_URL.*Rota\(\"local\"\)"):
        anything.sync.start()
    app.loop_thread.close()


async def test_start_key_is_unique_for_duration_or_open_run(rota_harness: Any) -> None:
    app: Rota = rota_harness.app

    @app.task
    async def once() -> None: ...

    hourly = once.options(key="hour", unique=timedelta(hours=1))
    first = await hourly.start()
    assert (await hourly.start()).id == first.id
    await rota_harness.clock.advance(timedelta(hours=1, seconds=1))
    assert (await hourly.start()).created

    single = once.options(key="single", unique="open")
    first = await single.start()
    assert (await single.start()).id == first.id
    await rota_harness.run_until_idle()
    assert (await single.start()).created
