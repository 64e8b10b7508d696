"""Fixtures of the alert tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.alert_fleet import Fleet
from support.alert_helpers import ManualEvaluator, short_rounds

__all__ = ["fleet", "manual_evaluator", "short_rounds"]


@pytest.fixture
async def manual_evaluator(rota_dsn: str) -> AsyncIterator[ManualEvaluator]:
    looker = ManualEvaluator(rota_dsn)
    yield looker
    await looker.close()


@pytest.fixture
def fleet(rota_dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(rota_dsn, tmp_path)
    yield fleet
    fleet.end()
