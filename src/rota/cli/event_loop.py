"""The event loop of long-running commands: uvloop's where it is installed; what must not stop half-way, and
what must not keep a process from ending.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rota.cli.exit_codes import OK

T = TypeVar("T")

log = logging.getLogger("rota")

WORK_THREAD_PREFIXES = ("rota", "asyncio_", "AnyIO worker thread")
"""How threads are named that carry what others asked for: jobs, steps and webhooks; what code hands to
`asyncio.to_thread`; and the plain functions that are endpoints of an API."""

EXIT_TIMEOUT_SECONDS = 1.0
"""Seconds for them to see that nobody waits for them any more."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it, and leave when it ends: whatever is still carried then was given up on before, and Python
    would wait for it, for ever."""
    new_event_loop: Callable[[], asyncio.AbstractEventLoop]
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = asyncio.new_event_loop
    # One that we can let go of: the loop's own is waited for when the loop is closed.
    pool = ThreadPoolExecutor(thread_name_prefix="asyncio")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.get_loop().set_default_executor(pool)
        result = runner.run(main)
        pool.shutdown(wait=False, cancel_futures=True)
        if stuck := _count_stuck_threads():
            log.info("%s thread(s) would not end, and are left behind", stuck)
            runner.run(_cancel_tasks())
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            logging.shutdown()
            os._exit(OK)
        return result


def _count_stuck_threads() -> int:
    """In how many threads something goes on, after a last moment."""
    deadline = time.monotonic() + EXIT_TIMEOUT_SECONDS
    threads = [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(WORK_THREAD_PREFIXES) and not thread.daemon
    ]
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    return sum(thread.is_alive() for thread in threads)


async def _cancel_tasks() -> None:
    """What closing the loop would do, for a moment: that tasks which are left end in order."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=EXIT_TIMEOUT_SECONDS)
    await asyncio.get_running_loop().shutdown_asyncgens()


async def finish_even_if_cancelled(
    coroutine: Coroutine[Any, Any, T], on_result: Callable[[T], object] | None = None
) -> T:
    """What must not be left half done: whoever is cancelled meanwhile is so once it has ended. `then` hears
    of the answer in any case."""
    running = asyncio.ensure_future(coroutine)
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.wait([running])
        if on_result is not None and not running.cancelled() and running.exception() is None:
            on_result(running.result())
    return running.result()
