"""Databases by project: each project directory has one of its own on the user's embedded server.

A project is the nearest directory, from the current one upwards, that has a project file. Its database is
named after the directory and a hash of its path, so that two projects of the same name stay apart.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "manage.py", "requirements.txt", ".git")

SHARED_DATABASE = "rota"
"""Database in a directory that the user has chosen. All programs that use the directory share it."""

MAX_NAME = 40
"""Characters of the directory's name in the name of its database; PostgreSQL allows 63 bytes in total."""


@dataclass(frozen=True, slots=True)
class ProjectDatabase:
    """`directory` is None for the shared database."""

    name: str
    directory: Path | None


def project_directory(start: Path) -> Path:
    """Return the nearest directory with a project file, from `start` upwards; else `start`."""
    start = start.resolve()
    for directory in (start, *start.parents):
        if any((directory / name).exists() for name in PROJECT_FILES):
            return directory
    return start


def database_of(directory: Path) -> ProjectDatabase:
    """Return the database of a project directory."""
    name = re.sub(r"[^a-z0-9]+", "_", directory.name.lower()).strip("_")[:MAX_NAME] or "project"
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]
    return ProjectDatabase(f"{name}_{digest}", directory)


def default_database(directory: Path | None) -> ProjectDatabase:
    """Return the current project's database, or the shared one in a directory that the user has chosen."""
    if directory is not None or os.environ.get("ROTA_LOCAL_DIR"):
        return ProjectDatabase(SHARED_DATABASE, None)
    return database_of(project_directory(Path.cwd()))
