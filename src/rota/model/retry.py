"""Retries: is there another attempt, and when."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rota.errors import DefinitionError, RetryLater
from rota.model.settings import Duration, seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """How often a job is tried, and how long it waits in between.

    The nth wait is `wait × backoff^(n-1)`, at most `cap`, off by up to `jitter` of itself so that jobs
    that failed together do not come back together. Errors of the types in `never` end the job at once.
    """

    attempts: int = 3
    wait: Duration = 1.0
    backoff: float = 2.0
    cap: Duration = 3600.0
    jitter: float = 0.2
    never: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 30_000:
            raise DefinitionError(
                f"Retry(attempts={self.attempts}) must be from 1 (no retry) to 30000"
            )
        # Said the other way round, because NaN is neither.
        if not (seconds(self.wait) >= 0 and seconds(self.cap) >= 0):
            raise DefinitionError("Retry(wait=…, cap=…) cannot be negative")
        if not self.backoff >= 1:
            raise DefinitionError(f"Retry(backoff={self.backoff}) must be at least 1")
        if not 0 <= self.jitter <= 1:
            raise DefinitionError(f"Retry(jitter={self.jitter}) must be from 0 to 1")
        if not isinstance(self.never, tuple):
            object.__setattr__(self, "never", tuple(self.never))
        for kind in self.never:
            given: object = kind  # what the hint promises, a program need not keep
            if not (isinstance(given, type) and issubclass(given, BaseException)):
                raise DefinitionError(f"Retry(never=…) takes types of errors, not {kind!r}")

    def after(
        self,
        attempt: int,
        error: BaseException,
        random: Callable[[float, float], float] = random.uniform,
    ) -> float | None:
        """Seconds to wait after this attempt failed; None: it was the last."""
        if attempt >= self.attempts or isinstance(error, self.never):
            return None
        if isinstance(error, RetryLater):
            return max(error.after, 0.0)
        cap = seconds(self.cap)
        try:
            pause = min(seconds(self.wait) * self.backoff ** (attempt - 1), cap)
        except OverflowError:
            pause = cap
        return min(pause * random(1 - self.jitter, 1 + self.jitter), cap)

    def document(self) -> dict[str, Any]:
        """As it is stored with a job that has a policy of its own. Types cannot be stored: `never`
        stays the task's."""
        return {
            "attempts": self.attempts,
            "wait": seconds(self.wait),
            "backoff": self.backoff,
            "cap": seconds(self.cap),
            "jitter": self.jitter,
        }
