"""Signals: what is said to a run, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.journal import JournalEntry
from rota.store.array_literals import int_array, text_array
from rota.store.jobs import ClaimedJob
from rota.store.query import Query


def send(run: int, name: str, payload: str) -> Query[str | None]:
    """Say something to a run. Answers sent, known (there was one, which stands) or ended; None: there is no
    such run."""
    return Query(
        "signal/send", {"run": run, "name": name, "payload": payload}, lambda answer: answer
    )


def read_payload(run: int, name: str) -> Query[str]:
    """What was said under a name. No row: nothing, so far."""
    return Query("signal/look", {"run": run, "name": name}, str)


def register_waits(waits: Sequence[tuple[ClaimedJob, JournalEntry]]) -> Query[None]:
    """Note who waits for what, and lock it."""
    return Query(
        "signal/expect",
        {
            "runs": int_array([job.job if job.run is None else job.run for job, _ in waits]),
            "names": text_array([step.name for _, step in waits]),
            "jobs": int_array([job.job for job, _ in waits]),
        },
        lambda: None,
    )
