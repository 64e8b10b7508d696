"""Outcomes while the server fails: they are kept and resent until it accepts them, for any error."""

from __future__ import annotations

import psycopg
import pytest

from rota import Context, Retry, Rota, RunFailed
from rota.engine.durable.journal import WorkerJournal
from support.queries import fetch, until

JOBS = 20

SERVER_ERRORS = [
    "53100",  # disk full
    "53200",  # out of memory
    "53400",  # configuration limit exceeded
    "58030",  # I/O error
    "57014",  # statement timeout
    "55P03",  # lock not available
    "40001",  # serialization failure
    "25006",  # read-only server
    "42501",  # insufficient privilege
    "XX000",  # internal error
    "P0001",  # raised by a trigger
]


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.engine.worker.claim_loop.CONTENDED_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


class Failing:
    """A trigger that raises a SQLSTATE for each row inserted into a table, and counts them."""

    def __init__(self, dsn: str, table: str, code: str, when: str = "true") -> None:
        self._dsn = dsn
        self._table = table
        self._code = code
        self._when = when

    async def __aenter__(self) -> Failing:
        await self._execute(
            "create sequence public.refused",
            f"""create function public.refuse() returns trigger language plpgsql as $$
                begin
                    perform nextval('public.refused');
                    raise exception 'injected' using errcode = '{self._code}';
                end $$""",
            f"create trigger refuse before insert on rota.{self._table} "
            f"for each row when ({self._when}) execute function public.refuse()",
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._execute(f"drop trigger refuse on rota.{self._table}")

    async def refused(self) -> bool:
        """True if a row was refused three times: as part of a batch, and when it was resent."""
        [(refused, called)] = await fetch(self._dsn, "select last_value, is_called from refused")
        return bool(called and refused >= 3)

    async def _execute(self, *statements: str) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn) as connection:
            for statement in statements:
                await connection.execute(statement.encode())


@pytest.mark.parametrize("code", SERVER_ERRORS)
async def test_success_during_server_error_is_recorded_later(rota_app: Rota, code: str) -> None:
    dsn = rota_app.database.dsn or ""
    ran: list[int] = []

    @rota_app.task(retry=Retry(max_attempts=1))
    async def work(n: int) -> int:
        ran.append(n)
        return n

    async with rota_app.worker():
        async with Failing(dsn, "outcomes", code) as failing:
            runs = await rota_app.start_many([work.bind(n=n) for n in range(JOBS)])
            await until(failing.refused)
        assert [await run.result(timeout=60) for run in runs] == list(range(JOBS))
    assert sorted(ran) == list(range(JOBS))
    assert await fetch(
        dsn, "select state::text, attempt, count(*) from rota.outcomes group by 1, 2"
    ) == [("succeeded", 1, JOBS)]


@pytest.mark.parametrize("code", ["53100", "57014", "XX000"])
async def test_retry_during_server_error_is_recorded_later(rota_app: Rota, code: str) -> None:
    dsn = rota_app.database.dsn or ""

    @rota_app.task(retry=Retry(max_attempts=2, delay=0))
    async def work(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    async with rota_app.worker():
        async with Failing(dsn, "attempts", code) as failing:
            runs = await rota_app.start_many([work.bind() for _ in range(JOBS)])
            await until(failing.refused)
        assert {await run.result(timeout=60) for run in runs} == {2}


@pytest.mark.parametrize("code", ["53100", "57014", "XX000"])
async def test_sleep_during_server_error_is_recorded_later(rota_app: Rota, code: str) -> None:
    dsn = rota_app.database.dsn or ""

    @rota_app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> int:
        await ctx.sleep(0.2)
        return ctx.attempt

    async with rota_app.worker():
        async with Failing(dsn, "sleeping", code) as failing:
            runs = await rota_app.start_many([work.bind() for _ in range(JOBS)])
            await until(failing.refused)
        assert {await run.result(timeout=60) for run in runs} == {1}


@pytest.mark.parametrize("code", ["22P02", "22021", "23514", "54000"])
async def test_outcome_that_can_never_be_stored_fails_its_job(rota_app: Rota, code: str) -> None:
    """Only the row with the result is refused: the failure that replaces it has none."""
    dsn = rota_app.database.dsn or ""

    @rota_app.task
    async def work(n: int) -> str:
        return "poison" if n == 7 else "fine"

    poisoned = """new.result::text = '"poison"'"""
    async with Failing(dsn, "outcomes", code, when=poisoned), rota_app.worker():
        runs = await rota_app.start_many([work.bind(n=n) for n in range(JOBS)])
        for n, run in enumerate(runs):
            if n == 7:
                with pytest.raises(RunFailed, match="injected"):
                    await run.result(timeout=60)
            else:
                assert await run.result(timeout=60) == "fine"
