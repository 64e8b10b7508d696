"""Protocol of a contender's process: one JSON document a line, commands in, answers out.

Standard library only, because it runs in the environment of each peer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any


class Wire:
    """Reads commands from stdin and writes answers to stdout; the end of stdin ends the process."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @classmethod
    async def open(cls) -> Wire:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        return cls(reader)

    async def read(self) -> dict[str, Any] | None:
        line = await self._reader.readline()
        return json.loads(line) if line else None

    def write(self, **answer: object) -> None:
        # One flushed write: the harness reads whole lines and acts on them at once.
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
