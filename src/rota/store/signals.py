"""Signals: what is said to a run, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.replay import Entry
from rota.store.arrays import of_ints, of_texts
from rota.store.jobs import Claimed
from rota.store.query import Query


def send(run: int, name: str, payload: str) -> Query[str | None]:
    """Say something to a run. Answers sent, known (there was one, which stands) or ended; None: there is no
    such run."""
    return Query(
        "signal/send", {"run": run, "name": name, "payload": payload}, lambda answer: answer
    )


def look(run: int, name: str) -> Query[str]:
    """What was said under a name. No row: nothing, so far."""
    return Query("signal/look", {"run": run, "name": name}, str)


def expect(waits: Sequence[tuple[Claimed, Entry]]) -> Query[None]:
    """Note who waits for what, and lock it."""
    return Query(
        "signal/expect",
        {
            "runs": of_ints([job.job if job.run is None else job.run for job, _ in waits]),
            "names": of_texts([step.name for _, step in waits]),
            "jobs": of_ints([job.job for job, _ in waits]),
        },
        lambda: None,
    )
