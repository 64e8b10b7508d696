"""Reader of the database's state at the end of a phase, as evidence."""

from __future__ import annotations

from typing import Any

import psycopg

from .durable import JOURNEYS
from .evidence import Effect, Job, JournalWrite, Move, Outcome, Run, StepEffect, WorkerStateChange

_MOVES = """
select id, tx, extract(epoch from at)::float8, extract(epoch from began)::float8, place, enters, job, claim,
       worker, attempt, crashes, state
  from chaos.audit order by id
"""
_JOBS = "select id, task, run, successors from rota.jobs"
_RUNS = "select id, jobs, parent, successors from rota.runs"
_OUTCOMES = "select job, state::text, attempt, claim, worker, error ->> 'type' from rota.outcomes"
_EFFECTS = (
    "select id, tx, extract(epoch from at)::float8, job, attempt from chaos.effects order by id"
)
_PRESENCE = (
    "select id, extract(epoch from at)::float8, worker, pid, state from chaos.presence order by id"
)
_STEP_EFFECTS = "select tx, job, step, value from chaos.steps order by id"
_KEPT = """
select tx, extract(epoch from at)::float8, job, kind, name, open, extract(epoch from until)::float8,
       result #>> '{}', again
  from chaos.kept order by id
"""
_SIGNALS = "select run, name, payload #>> '{}' from rota.signals where at is not null"
_RESULTS = """
select outcomes.job, array(select json_array_elements_text(outcomes.result))
  from rota.outcomes join rota.jobs on jobs.id = outcomes.job
 where jobs.task = any(%s) and outcomes.state = 'succeeded'
"""
LEFT = {
    "queued": "select count(*) from rota.queued",
    "sleeping": "select count(*) from rota.sleeping",
    "waiting": "select count(*) from rota.waiting",
    "claims": "select count(*) from rota.claims",
    "echoes": "select count(*) from rota.pending_releases",
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
            self.step_effects = [StepEffect(*row) for row in ask(_STEP_EFFECTS)]
            self.kept = [JournalWrite(*row) for row in ask(_KEPT)]
            self.signals = {(run, name): payload for run, name, payload in ask(_SIGNALS)}
            self.results: dict[int, list[str]] = dict(
                connection.execute(_RESULTS, (list(JOURNEYS),)).fetchall()
            )
            self.presence = [WorkerStateChange(*row) for row in ask(_PRESENCE)]
            self.quarantined = frozenset(job for (job,) in ask("select job from rota.quarantine"))
            self.waiting = dict(ask("select job, open from rota.waiting"))
            self.left = {place: int(ask(query)[0][0]) for place, query in LEFT.items()}
