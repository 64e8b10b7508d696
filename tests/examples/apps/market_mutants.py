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


def nobody_asks_who_has_it() -> None:
    """Disable `once`: only the vendor can detect a repeated request."""

    async def once(key: str, fn: Any, *args: Any, **how: Any) -> Any:
        return await fn(*args)

    app.once = once


def every_report_is_bought() -> None:
    """Also send a new key each time, so that the vendor cannot detect it either."""
    nobody_asks_who_has_it()
    sent = client.send
    client.send = lambda path, body=None, key="": sent(path, body, key and f"{uuid4()}")


def nobody_waits_for_his_turn() -> None:
    async def take() -> None:
        return None

    market.feed._rate_limit.take = take


def everything_is_new() -> None:
    """Report every row as inserted, also those that existed."""
    insert_once = app.insert_once

    async def insert(connection: Any, table: str, rows: Any, conflict: Any) -> Inserted:
        await insert_once(connection, table, rows, conflict=conflict)
        return Inserted(len(rows), 0, [tuple(row[name] for name in conflict) for row in rows])

    app.insert_once = insert


MUTANTS = {
    "nobody asks who has it": nobody_asks_who_has_it,
    "every report is bought": every_report_is_bought,
    "nobody waits for his turn": nobody_waits_for_his_turn,
    "everything is new": everything_is_new,
}
for name in os.environ["MUTANTS"].split(", "):
    MUTANTS[name]()
