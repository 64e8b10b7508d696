"""Callers of `once` that are killed or frozen."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

import pytest

from rota import Rota
from rota.errors import Busy

TTL = 1.0

KILLED = """
import asyncio, sys
from rota import Rota

async def slow() -> str:
    print("busy", flush=True)
    await asyncio.sleep(60)
    return "never"

async def main() -> None:
    async with Rota(sys.argv[1]) as app:
        print(await app.once("k", slow, ttl=float(sys.argv[2])))

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_once_killed_or_frozen_caller_is_replaced_after_expiry(
    how: signal.Signals, rota_app: Rota, rota_dsn: str
) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220 - it is not waited for
        [sys.executable, "-c", KILLED, rota_dsn, str(TTL)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "busy\n"
        await asyncio.sleep(TTL)
        with pytest.raises(Busy, match=f"process {process.pid} "):
            await rota_app.once("k", str, "other", wait=0)
        began = time.monotonic()
        process.send_signal(how)

        assert await rota_app.once("k", str, "other", wait=10) == "other"
        assert TTL / 3 < time.monotonic() - began < TTL + 1
    finally:
        process.kill()
        process.communicate()
