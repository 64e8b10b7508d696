"""Where the sales come from: a few files for each day, from a shop that hangs up now and then."""

from __future__ import annotations

import asyncio
import os
import random

PACE = float(os.environ.get("ETL_PACE", "1"))
"""0.1: all that takes its time takes a tenth of it."""

FILES = 12
SALES = 50
"""In each file."""


async def files_of(day: str) -> list[str]:
    await asyncio.sleep(1 * PACE)
    return [f"{day}/till-{number:02}.csv" for number in range(1, FILES + 1)]


async def read(file: str, attempt: int) -> list[tuple[str, int]]:
    """Each file holds the same whenever it is read: products, and what was paid for them, in cents."""
    await asyncio.sleep(1 * PACE)
    dice = random.Random(file)
    hangs_up = dice.random() < 0.4
    if hangs_up and attempt == 1:
        raise ConnectionError(f"the shop hung up in the middle of {file}")
    products = ("bread", "cake", "pie")
    return [(dice.choice(products), dice.randint(100, 5000)) for _ in range(SALES)]
