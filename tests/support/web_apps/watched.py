"""App that is observed while its database goes away and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rota import Rota

app = Rota(poll_interval=0.2, heartbeat_interval=0.5, dead_after=30, drain_timeout=60)


@app.task
async def double(n: int, gate: str = "") -> int:
    """Run until a file of the name `gate` exists."""
    while gate and not Path(gate).exists():  # noqa: ASYNC240 - a local file
        await asyncio.sleep(0.02)
    return 2 * n
