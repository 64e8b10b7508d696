"""Settings of the role or the database have no effect: connections set all they depend on.

One program, with jobs through most of their moves, runs under each setting and must have the same result.
"""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection

from rota.model.settings import Settings
from rota.store.database import Database
from support.role_settings import SAID, SAID_BY_ENGINES, change


@pytest.mark.parametrize("engine", [False, True], ids=["a client's", "a worker's"])
async def test_connection_overrides_role_settings(
    db: AsyncConnection[Any], rota_dsn: str, engine: bool
) -> None:
    relied_on = SAID | (SAID_BY_ENGINES if engine else {})
    await change(db, {name: contrary for name, (_, contrary) in relied_on.items()})

    database = Database(rota_dsn, Settings())
    async with await database.connect(engine=engine) as connection:
        for name, (said, _) in relied_on.items():
            found = await connection.execute("select current_setting(%s)", (name,))
            assert await found.fetchone() == (said,), name
