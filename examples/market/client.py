"""How the feed is asked: never faster than it likes, however many instances ask it."""

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
        # One row in the database counts for all instances. A little below what is allowed: between our turn
        # and the request's arrival lies a network.
        self._turns = app.rate_limit("feed", 0.8 * LIMIT, per=1)

    async def get(self, path: str) -> Any:
        await self._turns.take()
        return await asyncio.to_thread(send, path)

    async def buy(self, topic: str) -> Any:
        """A report. It costs money, so the vendor is told by what to know the request if it comes again."""
        await self._turns.take()
        return await asyncio.to_thread(send, "/reports", {"topic": topic}, key=f"report {topic}")


def send(path: str, body: object = None, key: str = "") -> Any:
    """One request; raises for every answer but a good one."""
    headers = {"User-Agent": f"market/{os.getpid()}"}
    if body is not None:
        headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(FEED + path, data, headers), timeout=10) as answer:
        return json.load(answer)
