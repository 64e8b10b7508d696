"""The event loop of long-running commands: uvloop's where it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
