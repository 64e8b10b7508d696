"""Isolated tasks that return the span that is current in their process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from opentelemetry import trace

from rota import Context, Rota

app = Rota("postgresql://nowhere/at-all")
log = logging.getLogger("shop.orders")


def current_span_ids() -> list[int]:
    here = trace.get_current_span().get_span_context()
    return [here.trace_id, here.span_id]


@app.task(isolation="process")
async def awaited() -> list[str]:
    return [f"{each:x}" for each in current_span_ids()]


@app.task(isolation="process")
def plain(ctx: Context) -> list[str]:
    return [f"{each:x}" for each in current_span_ids()]


@app.task(isolation="process")
def nowhere() -> bool:
    return trace.get_current_span().get_span_context().is_valid


def run_in_thread(fn: Callable[[], Any]) -> None:
    from contextvars import copy_context

    thread = threading.Thread(target=copy_context().run, args=(fn,))
    thread.start()
    thread.join()
