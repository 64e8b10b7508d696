"""`rota check-deploy`: journals of runs in flight against the code of the next deploy."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pooler.bouncer import bouncer
from rota import Context
from rota import Rota as App
from rota.cli.exit_codes import FAILED
from rota.engine.simulation import replay_check
from rota.testing.server import DatabaseServer

from .conftest import Rota
from .deploys import OTHER, Deploy, deploying, in_flight, note, onboarding

SAME = """
@app.task
async def onboard(ctx: Context, user: int) -> None:
    await ctx.step("account", note, "account")
    await ctx.sleep(days=7)
    await ctx.step("thank", note, "thank")
    await ctx.step("ask", note, "ask")
"""

VERSIONED = """
@app.task
async def onboard(ctx: Context, user: int) -> None:
    await ctx.step("account", note, "account")
    if ctx.version("greet"):
        await ctx.step("greet", note, "greet")
    await ctx.sleep(days=7)
    await ctx.step("ask", note, "ask")
"""


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    return deploying(tmp_path, monkeypatch)


# Journals


def test_code_that_comes_to_the_same_and_then_to_more_is_fine(
    alone: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    in_flight(empty_dsn, onboarding)

    for code in (SAME, VERSIONED):
        checked = alone("check-deploy", deploy(code))

        assert (checked.code, checked.err) == (0, "")
        assert (
            checked.out
            == "checked 1 job of 1 task, 1 of them replayed: all continue with new:app\n"
        )


def test_a_step_put_before_what_a_run_had_come_to_strands_it(
    alone: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    run = in_flight(empty_dsn, onboarding)

    checked = alone("check-deploy", deploy(OTHER))

    assert (checked.code, checked.complaint) == (FAILED, "1 job would strand with new:app")
    assert re.split(r"  +", checked.out.splitlines()[1]) == [
        "onboard",
        "1",
        str(run),
        "history does not fit",
        "reached step 'greet', but its journal has sleep here",
    ]


def test_what_was_told_is_what_happens(alone: Rota, empty_dsn: str, deploy: Deploy) -> None:
    """The run continues with the code that the check accepted, and is quarantined with the other."""
    runs = [in_flight(empty_dsn, onboarding) for _ in range(2)]
    assert alone("check-deploy", deploy(OTHER)).code == FAILED
    assert alone("check-deploy", deploy(VERSIONED)).code == 0

    async def goes_on(app: App) -> None:
        @app.task
        async def onboard(ctx: Context, user: int) -> None:
            await ctx.step("account", note, "account")
            if user == 42 or ctx.version("greet"):
                await ctx.step("greet", note, "greet")
            await ctx.sleep(days=7)

        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            connection.execute("update rota.sleeping set wake_at = rota.clock()")

    in_flight(empty_dsn, goes_on)

    states = [alone("show", str(run), "--json").json()["state"] for run in runs]
    assert states == ["quarantined", "quarantined"]


def test_a_function_that_ends_before_it_should_strands_its_runs(
    alone: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    in_flight(empty_dsn, onboarding)
    code = """
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        await ctx.step("account", note, "account")
    """

    checked = alone("check-deploy", deploy(code))

    assert checked.code == FAILED
    assert "reached its end, but its journal has sleep here" in checked.out


def test_an_error_on_the_way_is_told(alone: Rota, empty_dsn: str, deploy: Deploy) -> None:
    in_flight(empty_dsn, onboarding)
    code = """
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        await ctx.step("account", note, "account")
        raise LookupError("no such user")
    """

    checked = alone("check-deploy", deploy(code))

    assert checked.code == FAILED
    assert "error during replay  LookupError: no such user" in checked.out


def test_code_that_does_not_come_to_where_it_was_is_left_alone(
    alone: Rota, empty_dsn: str, deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_flight(empty_dsn, onboarding)
    monkeypatch.setattr(replay_check, "REPLAY_TIMEOUT_SECONDS", 0.2)
    code = """
    import asyncio
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        await ctx.step("account", note, "account")
        await asyncio.sleep(3600)
    """

    checked = alone("check-deploy", deploy(code))

    assert checked.code == FAILED
    assert "the code did not reach the end of its journal within 0.2 s" in checked.out


def test_plain_functions_are_looked_at_too(alone: Rota, empty_dsn: str, deploy: Deploy) -> None:
    async def plain(app: App) -> None:
        @app.task
        def remind(ctx: Context) -> None:
            ctx.sync.step("first", len, "abc")
            ctx.sync.sleep(days=1)

        await remind.start()

    in_flight(empty_dsn, plain)
    code = """
    @app.task
    def remind(ctx: Context) -> None:
        ctx.sync.step("{}", len, "abc")
        ctx.sync.sleep(days=1)
    """

    assert alone("check-deploy", deploy(code.format("first"))).code == 0
    assert alone("check-deploy", deploy(code.format("second"))).code == FAILED


def test_what_its_calls_came_to_is_given_again(alone: Rota, empty_dsn: str, deploy: Deploy) -> None:
    async def calling(app: App) -> None:
        @app.task
        async def double(n: int) -> int:
            return 2 * n

        @app.task
        async def parent(ctx: Context) -> None:
            found = await ctx.map([double.bind(2), double.bind(3)])
            await ctx.step(f"sum {sum(found)}", note, "x")
            await ctx.sleep(days=1)

        await parent.start()

    in_flight(empty_dsn, calling)
    code = """
    @app.task
    async def double(n: int) -> int:
        raise AssertionError("nothing is called")

    @app.task
    async def parent(ctx: Context) -> None:
        found = await ctx.map([double.bind({}), double.bind(3)])
        await ctx.step(f"{}", note, "x")
        await ctx.sleep(days=1)
    """

    fine = alone("check-deploy", deploy(code.format(2, "sum {sum(found)}")))
    renamed = alone("check-deploy", deploy(code.format(2, "total {sum(found)}")))
    other = alone("check-deploy", deploy(code.format(5, "sum {sum(found)}")))

    assert (fine.code, renamed.code, other.code) == (0, FAILED, FAILED)
    assert "reached step 'total 10', but its journal has step 'sum 10' here" in renamed.out
    assert "makes other calls than it had made" in other.out


# No side effects


def test_no_step_is_run_and_nothing_is_started_or_written(
    alone: Rota, empty_dsn: str, deploy: Deploy, tmp_path: Path
) -> None:
    run = in_flight(empty_dsn, onboarding)
    code = """
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        Path(__file__).with_name(f"between {user}").touch()
        ctx.log("looked at")
        ctx.progress(1, 2)
        if user == 42:
            EFFECT
        await ctx.step("other", note, "other")
    """
    before = everything(empty_dsn)

    # Where the check stops at EFFECT it finds no mismatch; otherwise it reaches a step the journal does not
    # have.
    for effect, code_of_exit in {
        'await onboard.options(key="k").start(user=1)': 0,
        f'await app.signal({run}, "go")': 0,
        "async with ctx.transaction(): pass": 0,
        "await ctx.run(onboard.bind(2))": 0,
        "await ctx.checkpoint(3)": FAILED,
        'await ctx.wait_signal("go")': FAILED,
    }.items():
        checked = alone("check-deploy", deploy(code.replace("EFFECT", effect)))
        assert checked.code == code_of_exit, (effect, checked)

    assert everything(empty_dsn) == before
    assert (tmp_path / "between 42").exists()
    assert not (tmp_path / "touched").exists()


def test_where_a_run_would_go_on_with_a_new_step_that_is_not_run(
    alone: Rota, empty_dsn: str, deploy: Deploy, tmp_path: Path
) -> None:
    in_flight(empty_dsn, onboarding)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("update rota.steps set wake_at = rota.clock() where kind = 'sleep'")

    assert alone("check-deploy", deploy(SAME)).code == 0
    assert not (tmp_path / "touched").exists()


def everything(dsn: str) -> dict[str, Any]:
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "select tablename from pg_tables where schemaname = 'rota' order by 1"
        ).fetchall()
        return {
            table: connection.execute(
                f"select array_agg(md5(t::text) order by t::text) from rota.{table} as t".encode()
            ).fetchone()
            for (table,) in tables
        }


def test_its_transactions_can_write_nothing(empty_dsn: str) -> None:
    from rota.store.read.in_flight import ReadOnlySession
    from rota.store.runs import cancel

    async def writing() -> None:
        async with App(empty_dsn) as app:
            run = await app.task(note).start("x")
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await ReadOnlySession((await app.open()).database).run_with_retry(cancel(run.id))

    asyncio.run(writing())


def test_without_replay_none_of_the_apps_code_runs(
    alone: Rota, empty_dsn: str, deploy: Deploy, tmp_path: Path
) -> None:
    in_flight(empty_dsn, onboarding)
    code = """
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        Path(__file__).with_name("ran").touch()
    """

    checked = alone("check-deploy", deploy(code), "--no-replay")

    assert (checked.code, checked.out) == (
        0,
        "checked 1 job of 1 task: all continue with new:app\n",
    )
    assert not (tmp_path / "ran").exists()


# Pooler


def test_through_a_pooler_it_finds_the_same(
    alone: Rota, empty_dsn: str, deploy: Deploy, rota_server: DatabaseServer
) -> None:
    in_flight(empty_dsn, onboarding)

    with bouncer(rota_server.dsn) as pooler:
        fine = alone("check-deploy", deploy(SAME), "--dsn", pooler.before(empty_dsn))
        other = alone("check-deploy", deploy(OTHER), "--dsn", pooler.before(empty_dsn))

    assert (fine.code, other.code) == (0, FAILED)
    assert "reached step 'greet', but its journal has sleep here" in other.out
