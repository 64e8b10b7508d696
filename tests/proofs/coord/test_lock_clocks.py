"""A process with a stepped clock that tries to acquire a lock."""

from __future__ import annotations

from pathlib import Path

from rota import Rota
from support.stepped_processes import (
    errors_while_acquiring,
)


async def test_lock_acquirer_with_stepped_clock_does_not_acquire(
    rota_dsn: str, rota_app: Rota, tmp_path: Path
) -> None:
    assert await errors_while_acquiring(rota_dsn, rota_app, tmp_path) == []
