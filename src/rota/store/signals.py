"""Queries for signals: send, read and wait."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.journal import JournalEntry
from rota.store.array_literals import int_array, text_array
from rota.store.jobs import ClaimedJob
from rota.store.query import Query, identity, no_row, statement


def send(run: int, name: str, payload: str) -> Query[str | None]:
    """Send a signal to a run.

    Return "sent", "known" (a signal of this name exists and is kept) or "ended"; None if the run does
    not exist.
    """
    return Query("signal/send", {"run": run, "name": name, "payload": payload}, identity)


@statement("signal/read_payload", str)
def read_payload(run: int, name: str) -> None:
    """Return the payload of a signal. No row if it was not sent yet."""


def register_waits(waits: Sequence[tuple[ClaimedJob, JournalEntry]]) -> Query[None]:
    """Record the jobs that wait for signals, and lock these signals."""
    return Query(
        "signal/register_waits",
        {
            "runs": int_array([job.job if job.run is None else job.run for job, _ in waits]),
            "names": text_array([step.name for _, step in waits]),
            "jobs": int_array([job.job for job, _ in waits]),
        },
        no_row,
    )
