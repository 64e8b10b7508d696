"""Rolling upgrade and rollback with wheels of three versions.

They are this tree, one with a further migration that is not breaking, and one with a breaking migration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.store.migrate import newest_version
from support.example_programs import Program, Programs
from support.places import ROOT

pytestmark = pytest.mark.slow

Make = Callable[..., Programs]

APP = """
import os
from rota import Rota

app = Rota()


@app.task
def version() -> str:
    return os.environ["VERSION"]
"""

COMPATIBLE = """-- breaking: no
alter table rota.workers add column test_only text;
"""

BREAKING = """-- breaking: yes
alter table rota.workers rename column test_only to tests_only;
"""

FIRST, SECOND = newest_version() + 1, newest_version() + 2

VERSIONS = {
    "old": {},
    "new": {f"{FIRST:04d}_compatible.sql": COMPATIBLE},
    "breaking": {
        f"{FIRST:04d}_compatible.sql": COMPATIBLE,
        f"{SECOND:04d}_breaking.sql": BREAKING,
    },
}
"""Migrations that each version has beyond those of this tree."""


def build_wheel(tree: Path, migrations: dict[str, str], target: Path) -> None:
    """Build a wheel of this tree with these further migrations, and unpack it."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name, text in migrations.items():
        (tree / "src" / "rota" / "store" / "migrations" / name).write_text(text)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=tree,
        check=True,
        capture_output=True,
    )
    [wheel] = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)


class Deployment:
    """Commands and workers of one version."""

    def __init__(self, programs: Programs, version: str, wheels: Path) -> None:
        self._programs = programs
        path = os.pathsep.join([f"{wheels / version}", f"{programs.directory}"])
        self._environment = {"PYTHONPATH": path, "VERSION": version}

    def start(self, *words: str) -> Program:
        return self._programs.start("rota", *words, **self._environment)

    def run(self, *words: str) -> tuple[int, str]:
        program = self.start(*words)
        return program.ended(), program.said

    def worker(self) -> Program:
        worker = self.start("worker", "shop:app", "--log-level", "info")
        worker.says(r"worker \d+: up to")
        return worker


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheels")
    for version, migrations in VERSIONS.items():
        build_wheel(directory / f"tree-{version}", migrations, directory / version)
    return directory


def test_upgrade_and_rollback_of_compatible_schema_lose_no_job(
    programs: Make, wheels: Path
) -> None:
    shop = programs()
    (shop.directory / "shop.py").write_text(APP)
    old, new, breaking = (Deployment(shop, version, wheels) for version in VERSIONS)

    def answer() -> str:
        """Start a job, and return the version that ran it."""
        [[job]] = shop.rows("select run from rota.start('version')")
        query = "select result::text from rota.outcomes where job = %s"
        shop.until(lambda: shop.rows(query, job))
        [[result]] = shop.rows(query, job)
        return str(result).strip('"')

    assert old.run("db", "migrate")[0] == 0
    first = old.worker()
    assert answer() == "old"

    # Upgrade: the old worker continues on the newer schema, and a new one replaces it.
    code, said = new.run("db", "migrate")
    assert (code, f"applied {FIRST:04d}_compatible" in said) == (0, True)
    assert answer() == "old"
    second = new.worker()
    assert first.stop() == 0
    assert answer() == "new"

    # Rollback: the old version starts on the newer schema.
    assert old.run("db", "migrate")[0] == 0
    assert old.run("db", "status")[0] == 0
    third = old.worker()
    assert second.stop() == 0
    assert answer() == "old"

    # A breaking migration: the old version is refused, with a reason.
    assert third.stop() == 0
    assert breaking.run("db", "migrate")[0] == 0
    for command in (["worker", "shop:app"], ["db", "migrate"], ["db", "status"]):
        code, said = old.run(*command)
        assert code == 4, said
        assert f"has migration {SECOND:04d}_breaking, which needs a newer Rota" in " ".join(
            said.split()
        )
    assert breaking.run("db", "status")[0] == 0
