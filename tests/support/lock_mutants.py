"""Known mistakes in the lock code, as switches for tests.

A test must find each of them.

Each mistake replaces the correct code where it is: in the text of a statement when a process loads it, in a
database function, or in a method. Applying a mutant fails if the code it replaces no longer exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from msgspec.structs import replace

from chaos.mutants import replace_all

if TYPE_CHECKING:
    from rota.store.query import Query

Changes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    what: str
    found_by: frozenset[str]
    """Properties of contest.py that this mistake breaks."""
    statements: Mapping[str, Changes] = field(default_factory=dict)
    functions: Mapping[str, Changes] = field(default_factory=dict)
    patch: Callable[[], None] = lambda: None
    robbed: float = 0.2
    """Share of disturbances that release the lock by force instead of stopping its holder."""


def apply(name: str) -> None:
    """Apply the mistake to this process."""
    from rota.store import query

    mutant, right = MUTANTS[name], query.load
    mutant.patch()

    def load(statement: str, schema: str) -> str:
        return replace_all(
            statement, right(statement, schema), mutant.statements.get(statement, ())
        )

    query.load = load  # type: ignore[assignment]
    for statement in mutant.statements:
        load(statement, "rota")


async def prepare(name: str, dsn: str) -> None:
    """Apply the mistake to this database."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        for function, changes in MUTANTS[name].functions.items():
            asked = f"select pg_get_functiondef('rota.{function}'::regproc)"
            row = await (await connection.execute(asked.encode())).fetchone()
            assert row is not None
            await connection.execute(replace_all(function, row[0], changes).encode())


def _believe() -> None:
    """Trust a lease until a loss is reported, without checking the clock."""
    from rota.coord.lease import Lease

    Lease.is_held = lambda self: not self.is_ended and self._lost_reason is None  # type: ignore[method-assign]


def _own_clock() -> None:
    """Use this machine's wall clock for expiry in statements and for trusting a lease."""
    from rota.coord.lease import LeaseClock
    from rota.store import locks

    def timed(function: Callable[..., Query[Any]]) -> Callable[..., Query[Any]]:
        def query(*args: Any, **kwargs: Any) -> Query[Any]:
            plain = function(*args, **kwargs)
            return replace(plain, params={**plain.params, "now": time.time()})

        return query

    for function in ("acquire", "renew", "release", "abandon", "assert_lock"):
        vars(locks)[function] = timed(vars(locks)[function])
    LeaseClock.now = lambda self: time.time()  # type: ignore[method-assign]


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
