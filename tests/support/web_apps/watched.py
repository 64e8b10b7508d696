"""App that is observed while its database goes away and comes back."""

from __future__ import annotations

import asyncio

from rota import Rota

app = Rota(poll_interval=0.2, heartbeat_interval=0.5, dead_after=30, drain_timeout=5)


@app.task
async def double(n: int, wait: float = 0.0) -> int:
    await asyncio.sleep(wait)
    return 2 * n
