"""What the database says at the end of a phase, as evidence."""

from __future__ import annotations

from typing import Any

import psycopg

from .evidence import Effect, Job, Move, Outcome, Presence, Run

_MOVES = """
select id, tx, extract(epoch from at)::float8, extract(epoch from began)::float8, place, enters, job, claim,
       worker, attempt, lost, state
  from chaos.audit order by id
"""
_JOBS = "select id, task, run, children from rota.jobs"
_RUNS = "select id, jobs, parent, children from rota.runs"
_OUTCOMES = "select job, state::text, attempt, claim, worker, error ->> 'type' from rota.outcomes"
_EFFECTS = (
    "select id, tx, extract(epoch from at)::float8, job, attempt from chaos.effects order by id"
)
_PRESENCE = (
    "select id, extract(epoch from at)::float8, worker, pid, state from chaos.presence order by id"
)
LEFT = {
    "ready": "select count(*) from rota.ready",
    "asleep": "select count(*) from rota.asleep",
    "waiting": "select count(*) from rota.waiting",
    "claims": "select count(*) from rota.claims",
    "echoes": "select count(*) from rota.echoes",
}


class Collected:
    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:

            def ask(query: str) -> list[tuple[Any, ...]]:
                return connection.execute(query.encode()).fetchall()

            self.moves = [Move(*row) for row in ask(_MOVES)]
            self.jobs = {
                id: Job(id, task, run, tuple(children or ()))
                for id, task, run, children in ask(_JOBS)
            }
            self.runs = {
                id: Run(id, tuple(jobs), parent, tuple(children or ()))
                for id, jobs, parent, children in ask(_RUNS)
            }
            self.outcomes = {row[0]: Outcome(*row) for row in ask(_OUTCOMES)}
            self.effects = [Effect(*row) for row in ask(_EFFECTS)]
            self.presence = [Presence(*row) for row in ask(_PRESENCE)]
            self.quarantined = frozenset(job for (job,) in ask("select job from rota.quarantine"))
            self.waiting = dict(ask("select job, open from rota.waiting"))
            self.left = {place: int(ask(query)[0][0]) for place, query in LEFT.items()}
