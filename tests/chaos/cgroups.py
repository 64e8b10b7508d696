"""Control groups with little memory, version 1 or 2, if this user may create them (root, or delegated)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@contextmanager
def memory_limited_groups(name: str, many: int, megabytes: int) -> Iterator[list[str]]:
    """Create `many` groups and yield their paths; yield none if that is not permitted."""
    made: list[Path] = []
    try:
        with suppress(OSError):
            for number in range(many):
                made.append(_make(f"{name}-{number}", megabytes))
        yield [str(path) for path in made] if len(made) == many else []
    finally:
        for path in made:
            _remove(path)


def _make(name: str, megabytes: int) -> Path:
    size = str(megabytes << 20)
    first = ROOT / "memory"
    if first.is_dir():
        path = first / name
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(size)
        return path
    path = ROOT / name
    path.mkdir()
    (path / "memory.max").write_text(size)
    with suppress(OSError):
        (path / "memory.swap.max").write_text("0")
    return path


def _remove(path: Path) -> None:
    """Remove the group; its processes may take a moment to exit."""
    for _ in range(50):
        with suppress(OSError):
            path.rmdir()
            return
        time.sleep(0.1)
