"""Database that tests damage, and the doctor's results for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from rota.model.check_result import CheckResult
from support.doctor import Doctor

Look = Callable[..., "AsyncIterator[CheckResult]"]


@pytest.fixture
def doctor(direct_dsn: str) -> Doctor:
    return Doctor(direct_dsn)
