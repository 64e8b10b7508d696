"""With ROTA_TEST_POOLER=1 the tests use a pooler, and without it they do not."""

from __future__ import annotations

import os

from rota.model.settings import Settings
from rota.store.database import Database


async def test_pooler_variable_selects_the_connection(rota_dsn: str, direct_dsn: str) -> None:
    asked = os.environ.get("ROTA_TEST_POOLER") == "1"
    async with await Database(rota_dsn, Settings()).connect() as connection:
        assert connection.pooled is asked
    async with await Database(direct_dsn, Settings()).connect() as connection:
        assert not connection.pooled
