"""Hears that the program was told to stop, and keeps nothing from whoever was to hear it.

A server told to stop tells its application when the last request was answered. A page that is live, or one
long request, may have kept it until then, while the worker beside it went on taking jobs.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def also_on_signal(callback: Callable[[], object]) -> Iterator[None]:
    """For as long as the block lasts `hear` is called at a signal, between any two steps of the main
    thread; then whoever listened before. Whoever listens by his event loop hears of it there, as ever. In
    another thread there is nothing to hear."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Only what Python listens to: nobody is to end, or to go on, for our sake.
    previous: dict[int, Any] = {
        number: handler for number in STOP_SIGNALS if callable(handler := signal.getsignal(number))
    }

    def chained_handler(number: int, frame: FrameType | None) -> None:
        callback()
        previous[number](number, frame)

    for number in previous:
        signal.signal(number, chained_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            # Whoever has put himself in our place meanwhile stays there.
            if signal.getsignal(number) is chained_handler:
                signal.signal(number, handler)
