"""Event loop of long-running commands: uvloop if it is installed.

It also runs operations that must not be interrupted, and ends the process in spite of stuck threads.
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
"""Name prefixes of threads that run work.

These are jobs, steps and webhooks; `asyncio.to_thread`; and plain functions that are endpoints of an
API.
"""

EXIT_TIMEOUT_SECONDS = 1.0
"""Time that these threads get to end at exit."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and exit when it ends.

    Threads that still run then were abandoned before; Python would wait for them forever.
    """
    new_event_loop: Callable[[], asyncio.AbstractEventLoop]
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = asyncio.new_event_loop
    # A separate executor, because closing the loop waits for the loop's own one.
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
    """Return the number of work threads that are still alive after EXIT_TIMEOUT_SECONDS."""
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
    """Cancel the remaining tasks as closing the loop would, but wait only EXIT_TIMEOUT_SECONDS."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=EXIT_TIMEOUT_SECONDS)
    await asyncio.get_running_loop().shutdown_asyncgens()


async def finish_even_if_cancelled(
    coroutine: Coroutine[Any, Any, T], on_result: Callable[[T], object] | None = None
) -> T:
    """Run a coroutine to its end even if the caller is cancelled; raise the cancellation afterwards.

    `on_result` receives the result in either case.
    """
    running = asyncio.ensure_future(coroutine)
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.wait([running])
        if on_result is not None and not running.cancelled() and running.exception() is None:
            on_result(running.result())
    return running.result()
