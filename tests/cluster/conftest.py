"""Fleet fixture: worker processes for each test, killed afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.fleet import Fleet

# Its short form is tests/coord/test_service_balancer.py.
collect_ignore = [] if os.environ.get("ROTA_TEST_LONG") == "1" else ["test_service_balancer.py"]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.kill()
