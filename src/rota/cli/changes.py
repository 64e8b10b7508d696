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

EVERY = 0.3
"""Seconds from one look to the next."""

CALM = 0.1
"""Seconds in which nothing more changes, when it is over."""

MOST = 20_000
"""Files that are looked at; nobody's project is larger, but somebody may start this in `/`."""

_OTHERS = {"__pycache__", "node_modules", "site-packages"}

Mark = tuple[int, int]


class Changes:
    """What has changed under some directories since this was made, or since it was last asked."""

    def __init__(self, roots: Iterable[Path]) -> None:
        # One inside another would be looked at twice.
        given = sorted({root.resolve() for root in roots})
        self.roots = [each for each in given if not any(other in each.parents for other in given)]
        self._known = self._look()

    @property
    def files(self) -> int:
        return len(self._known)

    def since(self) -> set[Path]:
        """What was changed, added or removed."""
        before, self._known = self._known, self._look()
        return {
            Path(name)
            for name in before.keys() | self._known.keys()
            if before.get(name) != self._known.get(name)
        }

    async def next(self) -> set[Path]:
        """Wait for a change, and for the end of it."""
        changed: set[Path] = set()
        while not changed:
            await asyncio.sleep(EVERY)
            changed = await asyncio.to_thread(self.since)
        more = changed
        while more:
            await asyncio.sleep(CALM)
            more = await asyncio.to_thread(self.since)
            changed |= more
        return changed

    def _look(self) -> dict[str, Mark]:
        found: dict[str, Mark] = {}
        for root in self.roots:
            for path, mark in _files(str(root)):
                found[path] = mark
                if len(found) >= MOST:
                    return found
        return found


def _files(directory: str) -> Iterator[tuple[str, Mark]]:
    left = [directory]
    while left:
        try:
            entries = list(os.scandir(left.pop()))
        except OSError:
            continue  # it has just gone, or is not ours to read
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _OTHERS:
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif entry.name.endswith(".py"):
                    seen = entry.stat()
                    yield entry.path, (seen.st_mtime_ns, seen.st_size)
            except OSError:
                continue


def mistake(paths: Iterable[Path]) -> str | None:
    """The first of these files that Python cannot read, and why, as Python says it; None: it reads all."""
    for path in sorted(paths):
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError, OSError) as error:
            said = "".join(traceback.format_exception_only(error)).rstrip()
            return said if isinstance(error, SyntaxError) else f"{path}: {said}"
    return None
