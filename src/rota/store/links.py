"""Where jobs were in a trace, for those who have waited for them."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.arrays import of_ints, of_texts
from rota.store.query import Query

MOST = 128
"""Links of one span, as many as are usually kept."""


def write(traced: Sequence[tuple[int, str]]) -> Query[int]:
    """Note of jobs that are about to end where they were."""
    params = {
        "jobs": of_ints(job for job, _ in traced),
        "traces": of_texts([trace for _, trace in traced]),
    }
    return Query("link/write", params, int)


def of(jobs: Sequence[int]) -> Query[tuple[int, str]]:
    """Of whom these jobs have come."""
    params = {"jobs": of_ints(jobs), "limit": MOST}
    return Query("link/of", params, lambda job, trace: (job, trace))


def of_calls(parent: int, run: int) -> Query[str]:
    """Where the calls were that a job has waited for."""
    return Query("link/of_calls", {"parent": parent, "run": run, "limit": MOST}, str)
