"""Detection of changed Python files, by polling their times and sizes.

Directories without code of the project are skipped: hidden ones, caches, virtual environments, installed
packages. A change is reported when files are quiet, because editors write in several steps.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

POLL_SECONDS = 0.3

QUIET_SECONDS = 0.1
"""Time without further changes after which a change is complete."""

MAX_FILES = 20_000
"""Limit for the case that it is started in a directory such as `/`."""

_SKIPPED_DIRECTORIES = {"__pycache__", "node_modules", "site-packages"}

FileStamp = tuple[int, int]


class FileWatcher:
    """Changes under some directories since creation, or since the last poll."""

    def __init__(self, roots: Iterable[Path]) -> None:
        # A directory inside another would be scanned twice.
        resolved = sorted({root.resolve() for root in roots})
        self.roots = [
            each for each in resolved if not any(other in each.parents for other in resolved)
        ]
        self._stamps = self._scan()

    @property
    def file_count(self) -> int:
        return len(self._stamps)

    def poll_changes(self) -> set[Path]:
        """Return the files that were changed, added or removed."""
        before, self._stamps = self._stamps, self._scan()
        return {
            Path(name)
            for name in before.keys() | self._stamps.keys()
            if before.get(name) != self._stamps.get(name)
        }

    async def wait_for_changes(self) -> set[Path]:
        """Wait for a change and until it is complete."""
        changed: set[Path] = set()
        while not changed:
            await asyncio.sleep(POLL_SECONDS)
            changed = await asyncio.to_thread(self.poll_changes)
        more = changed
        while more:
            await asyncio.sleep(QUIET_SECONDS)
            more = await asyncio.to_thread(self.poll_changes)
            changed |= more
        return changed

    def _scan(self) -> dict[str, FileStamp]:
        found: dict[str, FileStamp] = {}
        for root in self.roots:
            for path, stamp in _python_files(str(root)):
                found[path] = stamp
                if len(found) >= MAX_FILES:
                    return found
        return found


def _python_files(directory: str) -> Iterator[tuple[str, FileStamp]]:
    pending = [directory]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue  # removed meanwhile, or not readable
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _SKIPPED_DIRECTORIES:
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif entry.name.endswith(".py"):
                    status = entry.stat()
                    yield entry.path, (status.st_mtime_ns, status.st_size)
            except OSError:
                continue


def find_syntax_error(paths: Iterable[Path]) -> str | None:
    """Return the error of the first file that does not compile; None if all do."""
    for path in sorted(paths):
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError, OSError) as error:
            message = "".join(traceback.format_exception_only(error)).rstrip()
            return message if isinstance(error, SyntaxError) else f"{path}: {message}"
    return None
