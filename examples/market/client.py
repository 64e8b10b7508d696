"""Client of the feed. All instances together keep its rate limit."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any
from urllib.request import Request, urlopen

from rota import Rota

from .settings import FEED, LIMIT


class Feed:
    def __init__(self, app: Rota) -> None:
        # One row in the database counts the requests of all instances. The rate is a little below the
        # limit, because network delays can move requests closer together.
        self._rate_limit = app.rate_limit("feed", 0.8 * LIMIT, per=1)

    async def get(self, path: str) -> Any:
        await self._rate_limit.take()
        return await asyncio.to_thread(send, path)

    async def buy(self, topic: str) -> Any:
        """Buy a report. It costs money, so the request has an idempotency key."""
        await self._rate_limit.take()
        return await asyncio.to_thread(send, "/reports", {"topic": topic}, key=f"report {topic}")


def send(path: str, body: object = None, key: str = "") -> Any:
    """Send a request; raise for every status that is not 2xx."""
    headers = {"User-Agent": f"market/{os.getpid()}"}
    if body is not None:
        headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(FEED + path, data, headers), timeout=10) as answer:
        return json.load(answer)
