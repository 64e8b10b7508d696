"""Locks held by two instances that know nothing of each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from rota.store import locks
from rota.store.locks import LockAnswer, ReleasedLockRow, RenewedLock
from rota.store.query import Query
from support.stage import Connection, Stage

NAME = "invoices"
ME, OTHER = uuid4(), uuid4()

PAST = "update rota.locks set expires = rota.clock() - interval '1 ms' where name = %s"


def acquire_query(
    name: str = NAME,
    *,
    by: UUID = ME,
    ttl: float = 30.0,
    nonce: UUID | None = None,
    earlier: Sequence[UUID] = (),
    wait: bool = False,
    permits: int = 0,
) -> Query[LockAnswer]:
    who = {"instance": by, "host": f"host of {by}", "pid": 1, "label": ""}
    return locks.acquire(
        name, permits, nonce or uuid4(), who, ttl, None, wait=wait, earlier_nonces=earlier
    )


async def acquire(stage: Stage, on: Connection | None = None, **more: Any) -> LockAnswer:
    [answer] = await stage.run(acquire_query(**more), on or stage.watch)
    return answer


async def acquire_token(stage: Stage, on: Connection | None = None, **more: Any) -> int:
    """Acquire a free lock; return its token."""
    answer = await acquire(stage, on, **more)
    assert answer.token is not None, f"held by {answer.host}"
    return answer.token


async def renew(
    stage: Stage, token: int, by: UUID = ME, on: Connection | None = None, ttl: float = 30.0
) -> RenewedLock:
    [kept] = await stage.run(locks.renew(by, [(NAME, token, ttl)]), on or stage.watch)
    return kept


async def release(stage: Stage, token: int, on: Connection | None = None) -> ReleasedLockRow | None:
    rows = await stage.run(locks.release(NAME, 0, token), on or stage.watch)
    return rows[0] if rows else None


async def force_release(stage: Stage, on: Connection | None = None, name: str = NAME) -> Any:
    """Release the lock by force, as an operator does; return its former holder."""
    [holder] = await stage.sql("select rota.release_lock(%s, 0, 'me')", name, on=on)
    return holder and json.loads(holder)


async def expire_lock(stage: Stage, name: str = NAME) -> None:
    await stage.sql(PAST, name)


async def assert_in_open_transaction(stage: Stage, token: int, on: Connection) -> None:
    """Assert the lock in a transaction that stays open."""
    await stage.sql("begin", on=on)
    await stage.run(locks.assert_lock(NAME, token), on)


async def row(stage: Stage, name: str = NAME) -> str:
    [text] = await stage.sql("select each::text from rota.locks as each where name = %s", name)
    return str(text)
