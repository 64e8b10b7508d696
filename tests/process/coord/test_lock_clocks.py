"""Only the database's clock decides: stepping a client's wall clock by hours changes nothing.

libfaketime steps the clock of one process while it runs. It leaves CLOCK_BOOTTIME alone, as a change of a
real wall clock does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rota import Rota
from support.stepped_processes import (
    errors_while_acquiring,
    stepped_process,
)


async def errors_while_holding(dsn: str, app: Rota, directory: Path) -> list[str]:
    """Step the holder's clock while another instance tries to acquire the lock. Return the errors found."""
    wrong = []
    async with stepped_process(dsn, "hold", directory) as holder:
        stepping = asyncio.create_task(holder.step())
        while not stepping.done():
            if (taken := await app.try_lock("invoices")) is not None:
                wrong.append("taken twice")
                await taken.release()
            await asyncio.sleep(0.05)
    assert holder.was_stepped()
    *held, last = holder.said
    wrong += [f"lost: {each}" for each in held if each["lost"] or not each["held"]]
    return wrong if last["told"] is None else [*wrong, last["told"]]


async def test_lock_holder_with_stepped_clock_keeps_the_lock(
    rota_dsn: str, rota_app: Rota, tmp_path: Path
) -> None:
    assert await errors_while_holding(rota_dsn, rota_app, tmp_path) == []
    async with rota_app.lock("invoices", wait=0):
        pass


async def test_lock_mutant_with_client_clock_is_detected(
    rota_dsn: str, rota_app: Rota, tmp_path: Path
) -> None:
    """Mutant M12 uses the client's clock. The tests above find it, so they can fail."""
    assert await errors_while_acquiring(rota_dsn, rota_app, tmp_path, "M12") != []
