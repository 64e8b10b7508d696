"""What is done in a transaction of its own, and written down there if somebody does it by hand: that it was
done is known if and only if it was.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from rota.errors import DatabaseUnavailable
from rota.store import audit, failures
from rota.store.audit import Deed
from rota.store.database import Database, run
from rota.store.query import Query

if TYPE_CHECKING:
    from rota.store.session import Session

T = TypeVar("T")


async def transact(
    database: Database,
    do: Callable[[Session], Awaitable[T]],
    again: Callable[[BaseException], bool] = failures.is_contended,
    *,
    deed: Deed | None = None,
    did: Callable[[T], bool] = lambda answer: True,
) -> T:
    """Do it in a transaction, and anew where somebody was in the way. What may be done twice, `again` says
    so, is also done anew where nobody knows whether it was done. If it was done, as `did` says of the
    answer, the deed is written down with it."""
    patience = database.settings.patience
    deadline = time.monotonic() + patience
    while True:
        try:
            async with database.transaction(patience) as connection:
                answer = await do(connection)
                if deed is not None and did(answer):
                    await run(connection, audit.note(deed), database.schema)
                return answer
        except Exception as error:
            if not again(error):
                raise
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"this could not be done in time: {failures.first_line(error)}; try again later"
                ) from error
        await asyncio.sleep(random.uniform(0.02, 0.2))


async def act(
    database: Database,
    query: Query[T],
    deed: Deed | None,
    *,
    did: Callable[[T], bool],
    repeats: bool,
) -> T:
    """Run a query that answers one row. `repeats`: it may be done twice, so it is sent again where its
    answer was lost."""
    if deed is None:
        rows = await (database.insist(query) if repeats else database.run(query))
        return rows[0]

    async def acting(connection: Session) -> T:
        rows = await run(connection, query, database.schema)
        return rows[0]

    again = failures.is_passing if repeats else failures.is_contended
    return await transact(database, acting, again, deed=deed, did=did)
