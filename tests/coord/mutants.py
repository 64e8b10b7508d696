"""Known mistakes about locks, as switches, in test code only. Something must find every one of them.

Each is made where the right thing is done: in the text of a statement as a process loads it, in a function
of the database, or in a method. If what it changes is no longer there, it says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from chaos.mutants import changed

Changes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    what: str
    found_by: frozenset[str]
    """Which of the claims in contest.py are then broken."""
    statements: Mapping[str, Changes] = field(default_factory=dict)
    functions: Mapping[str, Changes] = field(default_factory=dict)
    patch: Callable[[], None] = lambda: None
    robbed: float = 0.2
    """How often it is taken away by hand instead of its holder being stopped, where it shows best."""


def apply(name: str) -> None:
    """Make the mistake in this process."""
    from rota.store import query

    mutant, right = MUTANTS[name], query.load
    mutant.patch()

    def load(statement: str, schema: str) -> str:
        return changed(statement, right(statement, schema), mutant.statements.get(statement, ()))

    query.load = load  # type: ignore[assignment]
    for statement in mutant.statements:
        load(statement, "rota")


async def prepare(name: str, dsn: str) -> None:
    """Make the mistake in this database."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        for function, changes in MUTANTS[name].functions.items():
            asked = f"select pg_get_functiondef('rota.{function}'::regproc)"
            row = await (await connection.execute(asked.encode())).fetchone()
            assert row is not None
            await connection.execute(changed(function, row[0], changes).encode())


def _believe() -> None:
    """Believe in a lock until somebody says that it is lost."""
    from rota.coord.lease import Lease

    Lease.is_held = lambda self: not self.is_ended and self._lost_reason is None  # type: ignore[method-assign]


def _own_clock() -> None:
    """Have the clock of this machine say what has run out, and until when something is held."""
    from rota.coord import lease_clock
    from rota.store import locks, query

    def timed(statement: str, params: Mapping[str, Any], row: Callable[..., Any]) -> Any:
        return query.Query(statement, {**params, "now": time.time()}, row)

    vars(locks)["Query"] = timed
    lease_clock.now = time.time


_OWN = (("rota.clock()", "to_timestamp(%(now)s::float8)"),)

MUTANTS = {
    "M6": Mutant(
        "the row is deleted when a lock is given back, and tokens are counted in it",
        frozenset({"tokens rise"}),
        statements={
            "lock/acquire": (
                ("set token = nextval('rota.tokens')", "set token = locks.token + 1"),
                ("fresh.slot, nextval('rota.tokens')", "fresh.slot, 1"),
            ),
            "lock/release": (
                (
                    "update rota.locks\n"
                    "   set instance = case when not held.held then locks.instance end,"
                    " awaited_since = null\n"
                    "  from held",
                    "delete from rota.locks\n using held",
                ),
            ),
        },
    ),
    "M7": Mutant(
        "whoever renews a lock does not look whether it was still there to be renewed",
        frozenset({"told in time"}),
        statements={
            "lock/renew": (
                ("case when kept.token is not null then true", "case when true then true"),
            )
        },
        robbed=0.9,
    ),
    "M12": Mutant(
        "the clock of each machine says what has run out, and whether to believe in a lock",
        frozenset({"clock"}),
        statements={name: _OWN for name in ("lock/acquire", "lock/renew", "lock/release")},
        patch=_own_clock,
    ),
    "plain": Mutant(
        "who takes a lock over locks its row as who renews it does",
        frozenset({"alone"}),
        statements={
            "lock/acquire": (
                ("limit 1\n       for update skip", "limit 1\n       for no key update skip"),
            )
        },
    ),
    "unpinned": Mutant(
        "who relies on a lock does not pin it",
        frozenset({"alone"}),
        functions={"assert_lock": (("for key share", ""),)},
    ),
    "believing": Mutant(
        "a lock is believed in until an answer says that it is lost",
        frozenset({"believed"}),
        patch=_believe,
    ),
}
