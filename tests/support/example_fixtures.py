"""Programs for each test, all ended afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.example_programs import Programs


@pytest.fixture
def programs(tmp_path: Path, rota_dsn: str) -> Iterator[Callable[..., Programs]]:
    made: list[Programs] = []

    def make(**environment: str) -> Programs:
        made.append(Programs(tmp_path, rota_dsn, **environment))
        return made[-1]

    yield make
    for each in made:
        each.close()
