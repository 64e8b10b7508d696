"""Helpers of the alert tests: short rounds, and the rows of the alerts."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Any

import psycopg
import pytest

from rota.engine.alerting import evaluator
from rota.engine.alerting.evaluator import Evaluation
from rota.model import alert_decision
from rota.model.settings import Settings
from rota.store.alerts import ChangedAlert
from rota.store.database import Database

QUICK: dict[str, Any] = {"poll_interval": 0.1}
HOST = socket.gethostname()
ME = (HOST, os.getpid())

Sql = psycopg.AsyncConnection[Any]


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ten rounds a second, and close alerts after a moment."""
    monkeypatch.setattr(evaluator, "EVALUATE_SECONDS", 0.1)
    monkeypatch.setattr(evaluator, "FIRST_EVALUATION_SECONDS", 0.0)
    monkeypatch.setattr(alert_decision, "CLOSE_AFTER_SECONDS", 0.3)


async def rows(sql: Sql) -> list[tuple[str, str, bool]]:
    """Return every alert, open or closed: kind, subject, and True if it is open."""
    cursor = await sql.execute("select kind, subject, cleared is null from rota.alerts order by id")
    return await cursor.fetchall()


async def until(sql: Sql, expected: list[tuple[str, str, bool]], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while (found := await rows(sql)) != expected:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.01)


async def message(sql: Sql, kind: str) -> str:
    cursor = await sql.execute(
        "select message from rota.alerts where kind = %s order by id desc limit 1", (kind,)
    )
    [(found,)] = await cursor.fetchall()
    return str(found)


class ManualEvaluator:
    """Instance that makes a round when the test calls it."""

    def __init__(self, dsn: str, **settings: Any) -> None:
        self.database = Database(dsn, Settings(**settings))
        self.round = Evaluation(self.database, ME)

    async def look(self) -> list[ChangedAlert]:
        """Make a round now, without waiting for the interval."""
        changed, _ = await self.round.evaluate(0.0)
        return changed

    async def close(self) -> None:
        await self.database.close()
