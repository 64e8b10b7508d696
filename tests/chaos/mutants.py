"""Known mistakes, as switches for tests.

The checker must find each of them.

Each mistake replaces the correct code where it is: in the text of a statement when a process loads it, in a
database function, or in a method. Applying a mutant fails if the code it replaces no longer exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from . import schedule
from .phases import SLOW, Phase

QUICK = {"heartbeat_interval": 0.25, "dead_after": 1.0}
"""Settings with which a dead worker is detected within a second."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    what: str
    phase: Phase
    """Phase in which the mistake shows."""
    found_by: frozenset[str]
    """Invariants that it violates."""
    seconds: float = 6.0
    statements: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Replacements by statement."""
    functions: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Replacements by database function."""
    database: str = ""
    """Statements that make the mistake more likely to show."""
    patch: Callable[[], None] = lambda: None
    settings: Mapping[str, Any] = field(default_factory=lambda: QUICK)


def apply(name: str) -> None:
    """Apply the mistake to this process."""
    from rota.store import query

    mutant = MUTANTS[name]
    mutant.patch()
    right = query.load

    def load(statement: str, schema: str) -> str:
        text = right(statement, schema)
        return replace_all(statement, text, mutant.statements.get(statement, ()))

    query.load = load  # type: ignore[assignment]
    for statement in mutant.statements:
        load(statement, "rota")


async def prepare(name: str, dsn: str) -> None:
    """Apply the mistake to this database."""
    mutant = MUTANTS[name]
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        if mutant.database:
            await connection.execute(mutant.database.encode())
        for function, changes in mutant.functions.items():
            asked = f"select pg_get_functiondef('rota.{function}'::regproc)"
            row = await (await connection.execute(asked.encode())).fetchone()
            assert row is not None
            await connection.execute(replace_all(function, row[0], changes).encode())


def replace_all(where: str, text: str, changes: tuple[tuple[str, str], ...]) -> str:
    """Return the text with the replacements made. Raise if an old text is missing."""
    for old, new in changes:
        if old not in text:
            raise LookupError(f"{where} has changed: the mutant must be updated ({old!r})")
        text = text.replace(old, new)
    return text


# Delays the commit of outcomes, so that two of them overlap.
_SLOW_COMMIT = """
create function chaos.linger() returns trigger language plpgsql as
    $$ begin perform pg_sleep(0.002 + random() * 0.01); return null; end $$;
create constraint trigger linger after insert on rota.outcomes
    deferrable initially deferred for each row execute function chaos.linger()
"""


def _stop_heartbeat_first() -> None:
    """Stop the heartbeat at the beginning of a drain instead of at its end."""
    from rota.engine.worker.drain import WorkerDrain

    right = WorkerDrain.run

    async def run(self: WorkerDrain) -> None:
        await self._stop_heartbeat()
        await right(self)

    WorkerDrain.run = run  # type: ignore[method-assign]


def _keep_observations() -> None:
    """Keep observations of other workers across an interruption."""
    from rota.engine.worker.failure_detector import FailureDetector

    FailureDetector.reset = lambda self: None  # type: ignore[method-assign]


def _record_afterwards() -> None:
    """Commit a step's writes before its record instead of together with it."""
    from rota.engine.durable.step import RunningStep
    from rota.store import steps

    async def commit(self: RunningStep, entry: Any) -> None:
        fence = self._job_transaction
        assert fence is not None
        if self._exit_stack is None:
            assert self._sync_exit_stack is not None
            await self._run_in_thread(self._sync_exit_stack.close)
        else:
            await self._exit_stack.aclose()
        await asyncio.sleep(0.05)
        await fence._database.run_with_retry(steps.record(fence.worker, [(fence.job, entry)]))

    RunningStep.commit = commit  # type: ignore[method-assign]


def _delay_suspension() -> None:
    """Delay between the check for a signal and the suspension."""
    from rota.engine.durable.journal import WorkerJournal

    right = WorkerJournal.read_signal

    async def look(self: WorkerJournal, name: str) -> str | None:
        found = await right(self, name)
        await asyncio.sleep(0.1)
        return found

    WorkerJournal.read_signal = look  # type: ignore[method-assign]


def _phase(faults: schedule.Make, **more: Any) -> Phase:
    return Phase("mutant", 0.0, faults, saw={}, **{"workers": 4, "quiet_within": 5.0, **more})


_ALL = (
    Mutant(
        "M1",
        "a completion is recorded without its claim being asked",
        _phase(schedule.freezes, mix=SLOW),
        frozenset({"I4", "I5"}),
        statements={
            "job/complete": (
                ("      from member\n     where member.finished\n)", "      from given\n)"),
                (
                    "select member.job, member.claim, %(worker)b::bigint, "
                    "member.seconds::float8 / 1e6, 'succeeded', member.attempt,\n"
                    "           member.result",
                    "select given.job, given.claim, %(worker)b::bigint, given.seconds::float8 / 1e6, "
                    "'succeeded', 1,\n           given.result",
                ),
            )
        },
    ),
    Mutant(
        "M2",
        "the last of several parents looks without a lock whether it is the last",
        _phase(schedule.no_faults, mix={"fan": 1}, rate=60.0),
        frozenset({"I1", "I15", "I17"}),
        seconds=4.0,
        functions={"release_successors": (("for update offset 0", "offset 0"),)},
        database=_SLOW_COMMIT,
    ),
    Mutant(
        "M3",
        "the reaper puts back what it saw in a claim before, not what is in it now",
        _phase(schedule.freezes_near_dead_after, mix=SLOW, workers=6),
        frozenset({"I3", "I4"}),
        seconds=10.0,
        functions={
            "reap": (
                (
                    "where claims.id = reap.claim for update skip locked;",
                    "where claims.id = reap.claim;\n    perform pg_sleep(0.4);",
                ),
            )
        },
    ),
    Mutant(
        "M4",
        "claiming is deleting: nothing says who holds the job",
        _phase(schedule.no_faults, mix={"noop": 1}, workers=2, quiet_within=2.0),
        frozenset({"I4", "I1"}),
        seconds=1.5,
        statements={
            "job/claim": (
                (
                    "insert into rota.claims (worker, nonce, jobs, attempts, crashes, seqs)\n"
                    "    select %(worker)b::bigint, %(nonce)b::uuid,\n"
                    "           array_agg(picked.job), array_agg(picked.attempt), "
                    "array_agg(picked.crashes), array_agg(picked.seq)\n"
                    "      from picked\n"
                    "    having count(*) > 0\n"
                    "    returning id",
                    "select nextval('rota.claims_id_seq') as id from picked\n"
                    "     where %(worker)b::bigint > 0 and %(nonce)b::uuid is not null limit 1",
                ),
            )
        },
    ),
    Mutant(
        "M7",
        "a worker goes on although its beat found it declared dead",
        _phase(schedule.freezes, mix=SLOW, quiet_within=8.0),
        frozenset({"I5", "I17"}),
        statements={
            "worker/beat": (("       and workers.state in ('active', 'draining')\n", ""),),
        },
    ),
    Mutant(
        "M10",
        "the heart stops first in a drain",
        _phase(schedule.drains, mix={"long": 1}, rate=8.0),
        frozenset({"I18"}),
        patch=_stop_heartbeat_first,
    ),
    Mutant(
        "M11",
        "after an outage whoever was not heard of meanwhile is dead",
        _phase(schedule.blackouts, mix=SLOW, workers=6, quiet_within=5.0, proxied=True),
        frozenset({"I18"}),
        seconds=3.0,
        patch=_keep_observations,
        settings={"heartbeat_interval": 0.5, "dead_after": 3.0},
    ),
    Mutant(
        "M14",
        "a job that is lost with its worker is not charged with it",
        _phase(schedule.no_faults, mix={"neighbour": 20, "poison": 1}, rate=30.0, quiet_within=4.0),
        frozenset({"I9"}),
        seconds=8.0,
        functions={
            "reap": (
                (
                    "case when blamed.charged or blamed.doubtful then blamed.attempt + 1 "
                    "else blamed.attempt end",
                    "blamed.attempt",
                ),
                (
                    "(select owner.state = 'stopped' and not member.charged)",
                    "(select true)",
                ),
            )
        },
    ),
    Mutant(
        "M15",
        "what a step wrote and that it is done are two transactions",
        _phase(schedule.kills, mix={"journey": 3, "trek": 1}, rate=30.0),
        frozenset({"I19"}),
        patch=_record_afterwards,
    ),
    Mutant(
        "M16",
        "a job lies down although what it waits for was said a moment ago",
        _phase(schedule.no_faults, mix={"journey": 1}, rate=30.0),
        frozenset({"I1", "I17"}),
        statements={"job/suspend": ((" or said.at is not null", ""),)},
        patch=_delay_suspension,
    ),
)

MUTANTS = {mutant.name: mutant for mutant in _ALL}
