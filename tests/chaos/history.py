"""History of one process: a line of JSON for each event, written at once, so that a kill loses none.

Each line has the process's monotonic time (`t`), the wall-clock time (`at`) and the event.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

SUFFIX = ".history"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Line(msgspec.Struct, frozen=True, gc=False):
    who: str
    t: float
    at: float
    what: str
    said: dict[str, Any]

    @property
    def job(self) -> int:
        job: int = self.said["job"]
        return job


class History:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, **said: Any) -> None:
        line = {"t": time.monotonic(), "at": time.time(), "what": what, **said}
        os.write(self._file, _encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def path_of(directory: Path, who: str) -> Path:
    return directory / f"{who}{SUFFIX}"


def read(directory: Path) -> list[Line]:
    """Return the lines of all processes, ordered by the wall clock, which they share."""
    lines = [line for path in directory.glob(f"*{SUFFIX}") for line in _read_one(path)]
    return sorted(lines, key=lambda line: line.at)


def _read_one(path: Path) -> Iterator[Line]:
    for text in path.read_bytes().split(b"\n")[:-1]:  # a line without an end was not completed
        said = _decode(text)
        yield Line(path.stem, said.pop("t"), said.pop("at"), said.pop("what"), said)
