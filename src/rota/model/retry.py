"""Retry policy: whether another attempt follows, and when."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rota.errors import DefinitionError, RetryLater
from rota.model.settings import Duration, to_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """Number of attempts of a job, and the delay between them.

    The nth delay is `delay × backoff^(n-1)`, at most `max_delay`. It varies randomly by up to ±`jitter`
    (0.2 is 20 %), so that jobs that failed together are not retried together. Errors of the types in
    `non_retryable` end the job at once.
    """

    max_attempts: int = 3
    delay: Duration = 1.0
    backoff: float = 2.0
    max_delay: Duration = 3600.0
    jitter: float = 0.2
    non_retryable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= 30_000:
            raise DefinitionError(
                f"Retry(max_attempts={self.max_attempts}) must be from 1 (no retry) to 30000"
            )
        # Written with `not`, so that NaN is refused as well.
        if not (to_seconds(self.delay) >= 0 and to_seconds(self.max_delay) >= 0):
            raise DefinitionError("Retry(delay=…, max_delay=…) must be 0 or more")
        if not self.backoff >= 1:
            raise DefinitionError(f"Retry(backoff={self.backoff}) must be at least 1")
        if not 0 <= self.jitter <= 1:
            raise DefinitionError(f"Retry(jitter={self.jitter}) must be from 0 to 1")
        if not isinstance(self.non_retryable, tuple):
            object.__setattr__(self, "non_retryable", tuple(self.non_retryable))
        for kind in self.non_retryable:
            given: object = kind  # type hints are not enforced at run time
            if not (isinstance(given, type) and issubclass(given, BaseException)):
                raise DefinitionError(f"Retry(non_retryable=…) takes types of errors, not {kind!r}")

    def delay_after(
        self,
        attempt: int,
        error: BaseException,
        random: Callable[[float, float], float] = random.uniform,
    ) -> float | None:
        """Return the seconds until the next attempt; None if no attempt follows.

        `RetryLater` sets the delay itself, without `max_delay` and `jitter`.
        """
        if attempt >= self.max_attempts or isinstance(error, self.non_retryable):
            return None
        if isinstance(error, RetryLater):
            return max(error.after, 0.0)
        max_delay = to_seconds(self.max_delay)
        try:
            delay = min(to_seconds(self.delay) * self.backoff ** (attempt - 1), max_delay)
        except OverflowError:
            delay = max_delay
        return min(delay * random(1 - self.jitter, 1 + self.jitter), max_delay)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy to store with a job that was started with `options(retry=…)`. Types cannot be
        stored, so `non_retryable` is always the task's."""
        return {
            "max_attempts": self.max_attempts,
            "delay": to_seconds(self.delay),
            "backoff": self.backoff,
            "max_delay": to_seconds(self.max_delay),
            "jitter": self.jitter,
        }
