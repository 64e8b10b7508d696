"""Trace contexts of finished jobs, for the jobs that waited for them."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.array_literals import int_array, text_array
from rota.store.query import Params, Query, statement

MAX_LINKS = 128
"""Links of one span, the usual limit of tracing systems."""


def write(links: Sequence[tuple[int, str]]) -> Query[int]:
    """Record the trace contexts of jobs that are about to end."""
    params = {
        "jobs": int_array(job for job, _ in links),
        "traces": text_array([trace for _, trace in links]),
    }
    return Query("trace_link/write", params, int)


def read(jobs: Sequence[int]) -> Query[tuple[int, str]]:
    """Return the trace contexts of the jobs that these jobs waited for."""
    params = {"jobs": int_array(jobs), "limit": MAX_LINKS}
    return Query("trace_link/read", params, lambda job, trace: (job, trace))


@statement("trace_link/read_of_calls", str)
def read_of_calls(parent: int, run: int) -> Params:
    """Return the trace contexts of the calls that a job waited for."""
    return {"limit": MAX_LINKS}
