"""Stand-in for a language model: a resource that the process opens and closes, and that jobs use."""

from __future__ import annotations

import asyncio
import os

PACE = float(os.environ.get("AGENTS_PACE", "1"))
"""Factor for all durations: 0.1 makes everything ten times as fast."""


class Model:
    def __init__(self) -> None:
        self._open = False

    async def open(self) -> None:
        await asyncio.sleep(0.2 * PACE)
        self._open = True
        print("model open", flush=True)

    async def close(self) -> None:
        self._open = False
        print("model closed", flush=True)

    async def ask(self, question: str) -> str:
        if not self._open:
            raise RuntimeError(
                "the model is not open; open it before the first job and close it after the last"
            )
        await asyncio.sleep(1 * PACE)
        return f"about {question!r}: it depends"


model = Model()
