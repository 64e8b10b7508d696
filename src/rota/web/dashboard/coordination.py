"""Coordination page: locks, semaphores, leaders, services, rate limits and once calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.operations.declare import OperationContext
from rota.store.read import coordination as read_coordination
from rota.store.read.coordination import LockRow
from rota.web.dashboard.router import Pages, PageView

pages = Pages()

MAX_LOCKS = 50
MAX_RATE_LIMITS = 50
MAX_ONCE_CALLS = 20
MAX_ITERATIONS = 20
MAX_RESULT_CHARACTERS = 300


class CoordinationPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Prefixes of names and keys to list, and the positions at which pages begin."""

    lock: Annotated[str, Meta(max_length=200)] = ""
    lock_after: Annotated[str, Meta(max_length=200)] = ""
    permit_after: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    once: Annotated[str, Meta(max_length=200)] = ""
    once_after: Annotated[str, Meta(max_length=500)] = ""
    service: Annotated[str, Meta(max_length=200)] = ""
    """Service for which the latest iterations are shown."""


class SemaphoreView(msgspec.Struct, frozen=True):
    name: str
    permits: list[LockRow]

    @property
    def held(self) -> int:
        return sum(each.held for each in self.permits)


@pages.page("/coordination", title="Coordination")
async def coordination(context: OperationContext, query: CoordinationPageQuery) -> PageView:
    locks, leaders, services, rate_limits, once_calls, iterations = await context.read(
        read_coordination.locks(
            prefix=query.lock, after=(query.lock_after, query.permit_after), limit=MAX_LOCKS + 1
        ),
        read_coordination.leaders(),
        read_coordination.services(),
        read_coordination.rate_limits(limit=MAX_RATE_LIMITS + 1),
        read_coordination.once_calls(query.once, query.once_after, MAX_ONCE_CALLS + 1),
        read_coordination.iterations(query.service, MAX_ITERATIONS),
    )
    shown = locks[:MAX_LOCKS]
    return PageView(
        "coordination.html",
        query=query,
        locks=[each for each in shown if each.permit == 0],
        semaphores=_semaphores([each for each in shown if each.permit > 0]),
        last_lock=shown[-1] if len(locks) > MAX_LOCKS else None,
        leaders=leaders,
        services=services,
        iterations=iterations,
        rate_limits=rate_limits[:MAX_RATE_LIMITS],
        more_rate_limits=len(rate_limits) > MAX_RATE_LIMITS,
        once_calls=once_calls[:MAX_ONCE_CALLS],
        more_once_calls=once_calls[MAX_ONCE_CALLS - 1].key
        if len(once_calls) > MAX_ONCE_CALLS
        else None,
        results=[abbreviate(each.result) for each in once_calls[:MAX_ONCE_CALLS]],
    )


def _semaphores(permits: Sequence[LockRow]) -> list[SemaphoreView]:
    return [
        SemaphoreView(name, list(held))
        for name, held in groupby(permits, key=lambda each: each.name)
    ]


def abbreviate(result: bytes | None) -> str:
    """Return the first MAX_RESULT_CHARACTERS characters of a result."""
    text = "null" if result is None else result.decode()
    return text if len(text) <= MAX_RESULT_CHARACTERS else f"{text[:MAX_RESULT_CHARACTERS]}…"
