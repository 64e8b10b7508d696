"""Where jobs were in a trace, for those who have waited for them."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.array_literals import int_array, text_array
from rota.store.query import Query

MAX_LINKS = 128
"""Links of one span, as many as are usually kept."""


def write(links: Sequence[tuple[int, str]]) -> Query[int]:
    """Note of jobs that are about to end where they were."""
    params = {
        "jobs": int_array(job for job, _ in links),
        "traces": text_array([trace for _, trace in links]),
    }
    return Query("link/write", params, int)


def read(jobs: Sequence[int]) -> Query[tuple[int, str]]:
    """Of whom these jobs have come."""
    params = {"jobs": int_array(jobs), "limit": MAX_LINKS}
    return Query("link/of", params, lambda job, trace: (job, trace))


def read_of_calls(parent: int, run: int) -> Query[str]:
    """Where the calls were that a job has waited for."""
    return Query("link/of_calls", {"parent": parent, "run": run, "limit": MAX_LINKS}, str)
