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

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def overhearing(hear: Callable[[], object]) -> Iterator[None]:
    """For as long as the block lasts `hear` is called at a signal, between any two steps of the main
    thread; then whoever listened before. Whoever listens by his event loop hears of it there, as ever. In
    another thread there is nothing to hear."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Only what Python listens to: nobody is to end, or to go on, for our sake.
    before: dict[int, Any] = {
        number: handler for number in NUMBERS if callable(handler := signal.getsignal(number))
    }

    def heard(number: int, frame: FrameType | None) -> None:
        hear()
        before[number](number, frame)

    for number in before:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number, handler in before.items():
            # Whoever has put himself in our place meanwhile stays there.
            if signal.getsignal(number) is heard:
                signal.signal(number, handler)
