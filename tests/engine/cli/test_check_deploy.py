"""`rota check-deploy`: journals of runs in flight against the code of the next deploy."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota import Context
from rota import Rota as App
from rota.cli.exit_codes import FAILED
from rota.engine.simulation import replay_check
from rota.errors import DatabaseUnavailable
from rota.testing.server import DatabaseServer
from support.check_deploy_helpers import (
    OTHER,
    Deploy,
    make_deploy,
    note,
    run_until_suspended,
    start_onboarding,
)
from support.cli_fixtures import Rota
from support.pgbouncer import run_pgbouncer

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
    return make_deploy(tmp_path, monkeypatch)


# Journals


def test_check_deploy_compatible_code_passes(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    run_until_suspended(empty_dsn, start_onboarding)

    for code in (SAME, VERSIONED):
        checked = empty_rota("check-deploy", deploy(code))

        assert (checked.code, checked.err) == (0, "")
        assert (
            checked.out
            == "checked 1 job of 1 task, 1 of them replayed: all continue with new:app\n"
        )


def test_check_deploy_step_inserted_before_journal_entry_strands_run(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    run = run_until_suspended(empty_dsn, start_onboarding)

    checked = empty_rota("check-deploy", deploy(OTHER))

    assert (checked.code, checked.complaint) == (FAILED, "1 job would strand with new:app")
    assert re.split(r"  +", checked.out.splitlines()[1]) == [
        "onboard",
        "1",
        str(run),
        "history does not fit",
        "reached step 'greet', but its journal has sleep here",
    ]


def test_check_deploy_rejected_code_quarantines_the_runs(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    """The run continues with the code that the check accepted, and is quarantined with the other."""
    runs = [run_until_suspended(empty_dsn, start_onboarding) for _ in range(2)]
    assert empty_rota("check-deploy", deploy(OTHER)).code == FAILED
    assert empty_rota("check-deploy", deploy(VERSIONED)).code == 0

    async def goes_on(app: App) -> None:
        @app.task
        async def onboard(ctx: Context, user: int) -> None:
            await ctx.step("account", note, "account")
            if user == 42 or ctx.version("greet"):
                await ctx.step("greet", note, "greet")
            await ctx.sleep(days=7)

        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            connection.execute("update rota.sleeping set wake_at = rota.clock()")

    run_until_suspended(empty_dsn, goes_on)

    states = [empty_rota("show", str(run), "--json").json()["state"] for run in runs]
    assert states == ["quarantined", "quarantined"]


def test_check_deploy_function_that_ends_early_strands_run(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    run_until_suspended(empty_dsn, start_onboarding)
    code = """
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        await ctx.step("account", note, "account")
    """

    checked = empty_rota("check-deploy", deploy(code))

    assert checked.code == FAILED
    assert "reached its end, but its journal has sleep here" in checked.out


def test_check_deploy_error_during_replay_is_reported(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    run_until_suspended(empty_dsn, start_onboarding)
    code = """
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        await ctx.step("account", note, "account")
        raise LookupError("no such user")
    """

    checked = empty_rota("check-deploy", deploy(code))

    assert checked.code == FAILED
    assert "error during replay  LookupError: no such user" in checked.out


def test_check_deploy_replay_timeout_strands_run(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_until_suspended(empty_dsn, start_onboarding)
    monkeypatch.setattr(replay_check, "REPLAY_TIMEOUT_SECONDS", 0.2)
    code = """
    import asyncio
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        await ctx.step("account", note, "account")
        await asyncio.sleep(3600)
    """

    checked = empty_rota("check-deploy", deploy(code))

    assert checked.code == FAILED
    assert "the code did not reach the end of its journal within 0.2 s" in checked.out


def test_check_deploy_sync_functions_are_replayed(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    async def plain(app: App) -> None:
        @app.task
        def remind(ctx: Context) -> None:
            ctx.sync.step("first", len, "abc")
            ctx.sync.sleep(days=1)

        await remind.start()

    run_until_suspended(empty_dsn, plain)
    code = """
    @app.task
    def remind(ctx: Context) -> None:
        ctx.sync.step("{}", len, "abc")
        ctx.sync.sleep(days=1)
    """

    assert empty_rota("check-deploy", deploy(code.format("first"))).code == 0
    assert empty_rota("check-deploy", deploy(code.format("second"))).code == FAILED


def test_check_deploy_replay_uses_stored_results_of_child_runs(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
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

    run_until_suspended(empty_dsn, calling)
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

    fine = empty_rota("check-deploy", deploy(code.format(2, "sum {sum(found)}")))
    renamed = empty_rota("check-deploy", deploy(code.format(2, "total {sum(found)}")))
    other = empty_rota("check-deploy", deploy(code.format(5, "sum {sum(found)}")))

    assert (fine.code, renamed.code, other.code) == (0, FAILED, FAILED)
    assert "reached step 'total 10', but its journal has step 'sum 10' here" in renamed.out
    assert "makes other calls than it had made" in other.out


# No side effects


def test_check_deploy_replay_has_no_side_effects(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy, tmp_path: Path
) -> None:
    run = run_until_suspended(empty_dsn, start_onboarding)
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
    before = table_digests(empty_dsn)

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
        checked = empty_rota("check-deploy", deploy(code.replace("EFFECT", effect)))
        assert checked.code == code_of_exit, (effect, checked)

    assert table_digests(empty_dsn) == before
    assert (tmp_path / "between 42").exists()
    assert not (tmp_path / "touched").exists()


def test_check_deploy_new_step_after_journal_is_not_run(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy, tmp_path: Path
) -> None:
    run_until_suspended(empty_dsn, start_onboarding)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("update rota.steps set wake_at = rota.clock() where kind = 'sleep'")

    assert empty_rota("check-deploy", deploy(SAME)).code == 0
    assert not (tmp_path / "touched").exists()


def table_digests(dsn: str) -> dict[str, Any]:
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


def test_check_deploy_session_refuses_writes(empty_dsn: str) -> None:
    from rota.store.read.in_flight import ReadOnlySession
    from rota.store.runs import cancel

    async def writing() -> None:
        async with App(empty_dsn) as app:
            run = await app.task(note).start("x")
            with pytest.raises(DatabaseUnavailable, match="read-only transaction"):
                await ReadOnlySession((await app.open()).database).run_with_retry(cancel(run.id))

    asyncio.run(writing())


def test_check_deploy_no_replay_option_runs_no_app_code(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy, tmp_path: Path
) -> None:
    run_until_suspended(empty_dsn, start_onboarding)
    code = """
    @app.task
    async def onboard(ctx: Context, user: int) -> None:
        Path(__file__).with_name("ran").touch()
    """

    checked = empty_rota("check-deploy", deploy(code), "--no-replay")

    assert (checked.code, checked.out) == (
        0,
        "checked 1 job of 1 task: all continue with new:app\n",
    )
    assert not (tmp_path / "ran").exists()


# Pooler


def test_check_deploy_through_pooler_finds_the_same(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy, rota_server: DatabaseServer
) -> None:
    run_until_suspended(empty_dsn, start_onboarding)

    with run_pgbouncer(rota_server.dsn) as pooler:
        fine = empty_rota("check-deploy", deploy(SAME), "--dsn", pooler.before(empty_dsn))
        other = empty_rota("check-deploy", deploy(OTHER), "--dsn", pooler.before(empty_dsn))

    assert (fine.code, other.code) == (0, FAILED)
    assert "reached step 'greet', but its journal has sleep here" in other.out
