"""The market monitor with known bugs: those that MUTANTS names."""

from __future__ import annotations

import importlib
import os
from typing import Any
from uuid import uuid4

from rota import Inserted

market: Any = importlib.import_module("examples.market.app")
client: Any = importlib.import_module("examples.market.client")
app = market.app


def disable_once() -> None:
    """Disable `once`: only the vendor can detect a repeated request."""

    async def once(key: str, fn: Any, *args: Any, **how: Any) -> Any:
        return await fn(*args)

    app.once = once


def change_idempotency_keys() -> None:
    """Also send a new key each time, so that the vendor cannot detect it either."""
    disable_once()
    sent = client.send
    client.send = lambda path, body=None, key="": sent(path, body, key and f"{uuid4()}")


def disable_rate_limit() -> None:
    async def take() -> None:
        return None

    market.feed._rate_limit.take = take


def report_all_rows_inserted() -> None:
    """Report every row as inserted, also those that existed."""
    insert_once = app.insert_once

    async def insert(connection: Any, table: str, rows: Any, conflict: Any) -> Inserted:
        await insert_once(connection, table, rows, conflict=conflict)
        return Inserted(len(rows), 0, [tuple(row[name] for name in conflict) for row in rows])

    app.insert_once = insert


MUTANTS = {
    "calls are not shared": disable_once,
    "every report is bought": change_idempotency_keys,
    "nobody waits for his turn": disable_rate_limit,
    "everything is new": report_all_rows_inserted,
}
for name in os.environ["MUTANTS"].split(", "):
    MUTANTS[name]()
