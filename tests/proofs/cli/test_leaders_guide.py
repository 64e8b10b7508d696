"""The guide to leaders: its programs behave as the guide describes."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from rota import LeadershipLost, Rota
from support.places import ROOT
from support.terminal import eventually

PAGE = (ROOT / "docs" / "guides" / "leaders.md").read_text("utf-8")


@pytest.fixture
def home() -> Iterator[Path]:
    """Directory with a short name that other users can enter: root cannot run PostgreSQL itself."""
    base = Path(tempfile.mkdtemp(prefix="rota-cli-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


def block(language: str, beginning: str) -> str:
    """Return the first block of the page that begins so."""
    found: str = re.findall(rf"```{language}\n({re.escape(beginning)}.*?)```", PAGE, re.DOTALL)[0]
    return found


def module(name: str, dsn: str) -> Any:
    """Import a module of the page, with its app on the test's database."""
    made: Any = ModuleType(name)
    exec(compile(block("python", f"# {name}.py"), f"{name}.py", "exec"), vars(made))
    made.app.database.switch(dsn)
    return made


def processes(directory: Path) -> list[str]:
    listed = subprocess.run(
        ["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


@pytest.mark.slow
def test_leaders_guide_killed_leader_is_replaced(home: Path) -> None:
    program, said = home / "mayor.py", home / "said"
    program.write_text(block("python", "import asyncio"))
    shown = block("", "$ python mayor.py").splitlines()[1:]
    environment = {**os.environ, "ROTA_LOCAL_DIR": str(home / "pg")}
    with said.open("w") as file:
        both = [
            subprocess.Popen([sys.executable, str(program)], env=environment, stdout=file)
            for _ in range(2)
        ]
        try:
            eventually(lambda: "term 1" in said.read_text())
            first = int(said.read_text().split()[0])
            [other] = [each for each in both if each.pid != first]
            next(each for each in both if each.pid == first).kill()
            eventually(lambda: "term 2" in said.read_text())
        finally:
            for each in both:
                each.kill()
                each.wait()
    eventually(lambda: not processes(home))
    pids = {"412": str(first), "413": str(other.pid)}
    assert said.read_text().splitlines() == [
        re.sub(r"^\d+", lambda found: pids[found[0]], line) for line in shown
    ]


async def test_leaders_guide_web_example_prints_start_and_end_of_term(
    rota_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await module("web", rota_dsn).main()
    said = capsys.readouterr().out.splitlines()
    assert (said[0], said[-1]) == ("leads in term 1", "no longer leads: resigned")
    assert set(said[1:-1]) == {"cleaning up"}


async def test_leaders_guide_write_after_lost_term_is_refused(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaning = module("cleaning", rota_dsn)
    with psycopg.connect(rota_dsn, autocommit=True) as sql:
        sql.execute("create table cleanings (term bigint)")
        await cleaning.clean_up(rota_dsn)
        connect = psycopg.AsyncConnection.connect

        async def late(dsn: str) -> Any:
            sql.execute("update rota.leaders set term = term + 1")
            return await connect(dsn)

        monkeypatch.setattr(psycopg.AsyncConnection, "connect", late)
        with pytest.raises(LeadershipLost):
            await cleaning.clean_up(rota_dsn)
        assert sql.execute("select term from cleanings").fetchall() == [(1,)]
    await cleaning.app.close()


async def test_leaders_guide_sql_assertion_refuses_an_ended_term(
    rota_app: Rota, rota_dsn: str
) -> None:
    statements = block("sql", "begin;")
    with psycopg.connect(rota_dsn, autocommit=True) as sql:
        sql.execute("create table cleanings (term bigint)")
        async with rota_app.leader("housekeeping").term() as term:
            await asyncio.to_thread(
                sql.execute, statements.replace("17", str(term.number)).encode()
            )
        with pytest.raises(psycopg.Error) as refused:
            sql.execute(statements.replace("17", str(term.number)).encode())
        sql.execute("rollback")
    assert refused.value.sqlstate == "RT005"
