"""Events of a page that the server streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from starlette.types import ASGIApp, Message


class Stream:
    """Reads server-sent events as they arrive."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            await self._chunks.put(message.get("body", b""))
            if not message.get("more_body"):
                await self._chunks.put(None)

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        text = ""
        async with asyncio.timeout(60):
            while (chunk := await self._chunks.get()) is not None:
                text += chunk.decode()
                *whole, text = text.split("\n\n")
                for each in whole:
                    kind, _, data = each.partition("\ndata:")
                    yield kind.removeprefix("event: "), json.loads(data) if data.strip() else None


@asynccontextmanager
async def stream(served: ASGIApp, at: str, token: str) -> AsyncIterator[Stream]:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/live",
        "raw_path": b"/live",
        "root_path": "",
        "query_string": str(httpx2.QueryParams({"page": at})).encode(),
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer " + token.encode())],
        "client": ("127.0.0.1", 4242),
        "server": ("127.0.0.1", 8000),
    }
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    stream = Stream()

    async def answering() -> None:
        await served(scope, receive, stream.send)

    task = asyncio.create_task(answering())
    try:
        yield stream
    finally:
        gone.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
