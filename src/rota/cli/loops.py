"""The event loop of long-running commands: uvloop's where it is installed; what must not stop half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def to_its_end(
    coroutine: Coroutine[Any, Any, T], then: Callable[[T], object] | None = None
) -> T:
    """What must not be left half done: whoever is cancelled meanwhile is so once it has ended. `then` hears
    of the answer in any case."""
    running = asyncio.ensure_future(coroutine)
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.wait([running])
        if then is not None and not running.cancelled() and running.exception() is None:
            then(running.result())
    return running.result()
