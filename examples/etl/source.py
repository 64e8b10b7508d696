"""Source of the sales: a few files for each day, from a server that drops connections now and then."""

from __future__ import annotations

import asyncio
import os
import random

PACE = float(os.environ.get("ETL_PACE", "1"))
"""Factor for all durations: 0.1 makes everything ten times as fast."""

FILES = 12
SALES = 50
"""Sales in each file."""


async def files_of(day: str) -> list[str]:
    await asyncio.sleep(1 * PACE)
    return [f"{day}/till-{number:02}.csv" for number in range(1, FILES + 1)]


async def read(file: str, attempt: int) -> list[tuple[str, int]]:
    """Return the sales of a file, always the same: products, and their prices in cents."""
    await asyncio.sleep(1 * PACE)
    dice = random.Random(file)
    is_dropped = dice.random() < 0.4
    if is_dropped and attempt == 1:
        raise ConnectionError(f"the server closed the connection while {file} was read")
    products = ("bread", "cake", "pie")
    return [(dice.choice(products), dice.randint(100, 5000)) for _ in range(SALES)]
