"""The pages on locks: their programs work, and the output they show is the commands' output."""

from __future__ import annotations

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

from rota import Rota
from rota.cli.main import COMMANDS
from rota.coord import elector, lease
from rota.errors import LockLost
from rota.model import alert_rules
from support.places import DOCS
from support.terminal import eventually

GUIDE, RUNBOOK = (
    (DOCS / "guides" / name).read_text("utf-8") for name in ("locks.md", "locks-runbook.md")
)


@pytest.fixture
def home() -> Iterator[Path]:
    """Directory with a short name that other users can enter: root cannot run PostgreSQL itself."""
    base = Path(tempfile.mkdtemp(prefix="rota-cli-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


def processes(directory: Path) -> list[str]:
    listed = subprocess.run(
        ["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


def block(language: str, beginning: str) -> str:
    """Return the first block of the guide that begins so."""
    found: str = re.findall(rf"```{language}\n({re.escape(beginning)}.*?)```", GUIDE, re.DOTALL)[0]
    return found


def module(name: str, dsn: str) -> Any:
    """Import a module of the guide, with its app on the test's database."""
    made: Any = ModuleType(name)
    exec(compile(block("python", f"# {name}.py"), f"{name}.py", "exec"), vars(made))
    made.app.database.switch(dsn)
    return made


@pytest.mark.slow
def test_locks_guide_first_example_twice_runs_in_sequence(home: Path) -> None:
    program = home / "invoices.py"
    program.write_text(block("python", "import asyncio"))
    shown = block("", "$ python invoices.py").splitlines()[1:]
    environment = {**os.environ, "ROTA_LOCAL_DIR": str(home / "pg")}

    with open(home / "said", "w+") as said:
        programs = [
            subprocess.Popen([sys.executable, str(program)], env=environment, stdout=said)
            for _ in range(2)
        ]
        codes = [each.wait(60) for each in programs]
        said.seek(0)
        lines = said.read().splitlines()

    eventually(lambda: not processes(home))
    # Concurrent acquirers may skip a token; no token is issued twice.
    tokens = list(dict.fromkeys(re.findall(r"token (\d+)", "\n".join(lines))))
    assert (codes, len(tokens)) == ([0, 0], 2)
    numbers = {each: str(number) for number, each in enumerate(sorted(tokens, key=int), 1)}
    assert [re.sub(r"\d+", lambda found: numbers[found[0]], line) for line in lines] == shown


async def test_locks_guide_write_after_lost_lock_is_refused(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = module("billing", rota_dsn)
    with psycopg.connect(rota_dsn, autocommit=True) as sql:
        sql.execute("create table invoices (id serial, token bigint)")
        await billing.book(rota_dsn)
        written = sql.execute("select token from invoices").fetchall()
        connect = psycopg.AsyncConnection.connect

        async def late(dsn: str) -> Any:
            sql.execute("select rota.release_lock('invoices', 0, 'me')")
            return await connect(dsn)

        monkeypatch.setattr(psycopg.AsyncConnection, "connect", late)
        with pytest.raises(LockLost):
            await billing.book(rota_dsn)
        after = sql.execute("select token from invoices").fetchall()
    await billing.app.close()

    assert len(written) == 1
    assert after == written


def test_locks_guide_sync_example_returns_rising_tokens(rota_dsn: str) -> None:
    nightly = module("nightly", rota_dsn)
    try:
        first, second = nightly.nightly(), nightly.nightly()
    finally:
        nightly.app.close_sync()

    assert first < second


async def test_locks_guide_sql_assertion_refuses_a_released_token(
    rota_app: Rota, rota_dsn: str
) -> None:
    statements = block("sql", "begin;")
    with psycopg.connect(rota_dsn, autocommit=True) as sql:
        sql.execute("create table invoices (id serial)")
        async with rota_app.lock("invoices") as lock:
            sql.execute(statements.replace("17", str(lock.token)).encode())
        with pytest.raises(psycopg.Error) as refused:
            sql.execute(statements.replace("17", str(lock.token)).encode())
        sql.execute("rollback")
        count = sql.execute("select count(*) from invoices").fetchone()

    assert refused.value.sqlstate == "RT004"
    assert count == (1,)


def test_locks_runbook_covers_every_alert_and_loss_reason() -> None:
    kinds = (
        alert_rules.HELD_TOO_LONG,
        alert_rules.RENEWALS_FAIL,
        alert_rules.TOKEN_TWICE,
        alert_rules.FLAPPING,
    )
    for words in (*(f"| {kind} |" for kind in kinds), lease.EXPIRED, lease.TAKEN_BY_OTHER):
        assert words in RUNBOOK, words
    for words in (elector.CONNECTION_LOST, elector.NOT_CONFIRMED):
        assert words in RUNBOOK, words


def test_locks_runbook_names_only_existing_commands() -> None:
    named = re.findall(r"(?:\$ |`)rota (\w+)", RUNBOOK)

    assert set(named) == {"locks", "leaders", "alerts", "audit"}
    assert set(named) <= set(COMMANDS)


@pytest.mark.parametrize("page", [GUIDE, RUNBOOK], ids=["guide", "runbook"])
def test_locks_guide_and_runbook_links_and_anchors_exist(page: str) -> None:
    for target, _, anchor in re.findall(r"\]\(([^)#]*)(#([^)]*))?\)", page):
        path = DOCS / "guides" / target
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert anchor in {_anchor(each) for each in headings}, anchor


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
