"""Which Python files of a project have changed: found by looking, every moment, at their times and sizes.

Directories that hold no code of the project are left out: hidden ones, caches, virtual environments, other
people's packages. A change is told once it is over: an editor writes in several steps.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

POLL_SECONDS = 0.3
"""Seconds from one look to the next."""

QUIET_SECONDS = 0.1
"""Seconds in which nothing more changes, when it is over."""

MAX_FILES = 20_000
"""Files that are looked at; nobody's project is larger, but somebody may start this in `/`."""

_SKIPPED_DIRECTORIES = {"__pycache__", "node_modules", "site-packages"}

FileStamp = tuple[int, int]


class FileWatcher:
    """What has changed under some directories since this was made, or since it was last asked."""

    def __init__(self, roots: Iterable[Path]) -> None:
        # One inside another would be looked at twice.
        resolved = sorted({root.resolve() for root in roots})
        self.roots = [
            each for each in resolved if not any(other in each.parents for other in resolved)
        ]
        self._stamps = self._scan()

    @property
    def file_count(self) -> int:
        return len(self._stamps)

    def poll_changes(self) -> set[Path]:
        """What was changed, added or removed."""
        before, self._stamps = self._stamps, self._scan()
        return {
            Path(name)
            for name in before.keys() | self._stamps.keys()
            if before.get(name) != self._stamps.get(name)
        }

    async def wait_for_changes(self) -> set[Path]:
        """Wait for a change, and for the end of it."""
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
            continue  # it has just gone, or is not ours to read
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
    """The first of these files that Python cannot read, and why, as Python says it; None: it reads all."""
    for path in sorted(paths):
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError, OSError) as error:
            message = "".join(traceback.format_exception_only(error)).rstrip()
            return message if isinstance(error, SyntaxError) else f"{path}: {message}"
    return None
