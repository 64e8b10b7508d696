"""Hints for users of other libraries: the error for `task.delay(…)` contains Rota's name for it.

Celery, Dramatiq, RQ, Huey and Procrastinate each have their own name for starting a task.
"""

from __future__ import annotations

START_NAMES = frozenset(
    (
        "apply_async",
        "async_",
        "defer",
        "defer_async",
        "delay",
        "enqueue",
        "schedule",
        "send",
        "submit",
    )
)


def missing_attribute(owner: object, noun: str, name: str) -> AttributeError:
    """Return the error for an attribute that a task or flow does not have."""
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if name in START_NAMES:
        message += (
            f"; use `await {noun}.start(…)`, or `{noun}.sync.start(…)` in code that does not await"
        )
    return AttributeError(message, name=name, obj=owner)
