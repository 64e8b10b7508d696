"""The guide to services and its example: both behave as the guide describes."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.model.service import ServiceContext
from support.places import ROOT
from support.terminal import eventually

GUIDE = ROOT / "docs" / "guides" / "services.md"
PAGE = GUIDE.read_text("utf-8")


@pytest.fixture
def home() -> Iterator[Path]:
    """Directory with a short name that other users can enter: root cannot run PostgreSQL itself."""
    base = Path(tempfile.mkdtemp(prefix="rota-cli-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


@contextmanager
def program(file: Path, home: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "ROTA_LOCAL_DIR": str(home / "pg")}
    with subprocess.Popen(
        [sys.executable, str(file)], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def lines(running: subprocess.Popen[str], count: int) -> list[str]:
    assert running.stdout
    return [running.stdout.readline().strip() for _ in range(count)]


def rota(home: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rota", *words],
        env={**os.environ, "ROTA_LOCAL_DIR": str(home / "pg"), "COLUMNS": "120"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for word, text in found if word == language]


def columns(text: str, first: str) -> list[str]:
    """Return the headings of a table; its first heading is `first`."""
    [line] = [line for line in text.splitlines() if line.startswith(first)][:1]
    return re.split(r"\s{2,}", line.strip())


def postgres_is_gone(home: Path) -> bool:
    listed = subprocess.run(
        ["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return str(home) not in listed.stdout


@pytest.mark.slow
def test_services_guide_first_example_continues_in_other_process(home: Path) -> None:
    file = home / "watch.py"
    file.write_text(blocks("python")[0])
    first, second = (
        block.replace("Killed\n", "").splitlines()[1:]
        for block in blocks("")
        if block.startswith("$ python watch.py")
    )
    with program(file, home) as one:
        assert lines(one, 1) == first[:1]
        with program(file, home) as other:
            assert lines(one, len(first) - 1) == first[1:]
            listed = rota(home, "services", "-a", "watch:app")
            # Until the other instance is standby, and not during an iteration, which has no duration yet.
            while "none" in listed or "running" in listed:
                first += lines(one, 1)
                listed = rota(home, "services", "-a", "watch:app")
            one.send_signal(signal.SIGKILL)
            one.wait()
            assert one.stdout
            first += one.stdout.read().split("\n")[:-1]
            went_on = lines(other, len(second))
            shown = rota(home, "services", "-a", "watch:app", "show", "filings")
            other.send_signal(signal.SIGTERM)
            assert other.wait(60) == 0
    assert first == [f"iteration {number + 1}" for number in range(len(first))]
    # An iteration may have been lost before it printed anything.
    [number] = {int(line.split()[1]) - at for at, line in enumerate(went_on)}
    assert number in (len(first) + 1, len(first) + 2)

    [page] = [block for block in blocks("") if block.startswith("$ rota services")]
    assert columns(listed, "service") == columns(page, "service")
    assert columns(shown, "iteration") == columns(page, "iteration")
    eventually(lambda: postgres_is_gone(home))


@pytest.mark.slow
def test_monitor_example_stores_each_finding_once(home: Path) -> None:
    with program(ROOT / "examples" / "monitor.py", home) as one:
        said = lines(one, 3)
        one.send_signal(signal.SIGTERM)
        assert one.wait(60) == 0
    assert said[0] == "iteration 1: 3 new, 0 known"
    for number, line in enumerate(said[1:], start=2):
        assert re.fullmatch(rf"iteration {number}: [12] new, [12] known", line)
    eventually(lambda: postgres_is_gone(home))


def test_services_guide_declarations_are_valid() -> None:
    written: dict[str, Any] = {"asyncio": asyncio}
    for block in blocks("python")[1:]:
        exec(block, written)
    app: Rota = written["app"]
    every = {name: each.every for name, each in app.registry.services.items()}
    assert every == {"prices": 300.0, "tail": None, "invoices": 60.0, "mailbox": None}
    assert [each.takes_context for each in app.registry.services.values()] == [
        False,
        True,
        True,
        True,
    ]


async def test_services_guide_mailbox_ends_on_stop(rota_app: Rota) -> None:
    written: dict[str, Any] = {
        "asyncio": asyncio,
        "app": rota_app,
        "ServiceContext": ServiceContext,
    }
    [block] = [each for each in blocks("python") if "mailbox" in each]
    exec(block.replace("sleep(5)", "sleep(0.05)"), written)
    client = await rota_app.open()
    async with client.raw_connections.transaction() as connection:
        await connection.execute("create table mails (seen timestamptz)")

    async def count() -> int:
        async with client.raw_connections.transaction() as connection:
            [found] = await (await connection.execute("select count(*) from mails")).fetchone() or [
                0
            ]
            return int(found)

    async with asyncio.timeout(60):
        async with rota_app.services():
            while await count() < 3:
                await asyncio.sleep(0.01)


def test_services_guide_names_only_existing_context_members() -> None:
    for name in re.findall(r"`(?:await )?ctx\.(\w+)", PAGE):
        assert hasattr(ServiceContext, name) or name in ("iteration", "name"), name


def test_services_guide_links_have_existing_targets() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (GUIDE.parent / target).exists(), target
