"""Project directory with `rota dev` running in it."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.terminal import Program, Terminal

APP = """
import asyncio
from pathlib import Path
from rota import Context, Rota

app = Rota()
NOTES = Path(__file__).with_name("notes")

@app.task
async def build(ctx: Context) -> str:
    with NOTES.open("a") as notes:
        notes.write(f"VERSION attempt {ctx.attempt}\\n")
    await asyncio.sleep(PATIENCE)
    return "VERSION"
"""


def port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        number: int = bound.getsockname()[1]
        return number


class Project:
    """Directory with an app and `rota dev` running in it, on an embedded PostgreSQL of its own."""

    def __init__(self, home: Path) -> None:
        self.directory = home / "project"
        self.directory.mkdir()
        self.notes = self.directory / "notes"
        self.terminal = Terminal(None, self.directory)
        self.terminal.environment["ROTA_LOCAL_DIR"] = str(home / "pg")
        self.port = port()

    def save(self, version: str, patience: float = 0, text: str = APP) -> None:
        filled = text.replace("VERSION", version).replace("PATIENCE", str(patience))
        (self.directory / "site_app.py").write_text(filled)

    def noted(self, line: str) -> bool:
        return self.notes.exists() and line in self.notes.read_text().splitlines()

    def page(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=60) as answer:
            status: int = answer.status
            return status


@pytest.fixture
def project(home: Path) -> Project:
    return Project(home)


@pytest.fixture
def dev(project: Project) -> Iterator[Program]:
    project.save("one", patience=60)
    with project.terminal.program("dev", "site_app:app", "-p", str(project.port)) as dev:
        yield dev
