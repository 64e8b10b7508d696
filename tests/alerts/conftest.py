"""Fixtures of the alert tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .fleet import Fleet
from .looking import Looker, quick

__all__ = ["fleet", "looker", "quick"]


@pytest.fixture
async def looker(rota_dsn: str) -> AsyncIterator[Looker]:
    looker = Looker(rota_dsn)
    yield looker
    await looker.close()


@pytest.fixture
def fleet(rota_dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(rota_dsn, tmp_path)
    yield fleet
    fleet.end()
