"""Mutants of services, which the checks of all iterations must find."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from support.programs.monitor_app import MUTANTS
from support.service_kills import find_faults, until

SECONDS, BETWEEN, LEAST = (300, 10.0, 25)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 120)]


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_service_mutant_is_detected(monitors: Any, rota_dsn: str, mutant: str) -> None:
    fleet = monitors(mutant=mutant, lease=1, takes=0.5, every=0.6)
    fleet.start(2)
    await until(lambda: len(fleet.look()) > 1 and fleet.all_are_up)
    victim = fleet.runner()
    victim.process.send_signal(signal.SIGSTOP)
    await until(lambda: fleet.runner() is not victim)
    victim.process.send_signal(signal.SIGCONT)
    await asyncio.sleep(0.8)
    fleet.stop()
    assert await find_faults(fleet, rota_dsn), mutant
