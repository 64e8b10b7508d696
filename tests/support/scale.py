"""Long forms of tests: `make proofs` sets ROTA_TEST_LONG=1 and runs every module that imports this one."""

from __future__ import annotations

import os
from typing import TypeVar

Short = TypeVar("Short")
Long = TypeVar("Long")


def scale(short: Short, long: Long) -> Short | Long:
    """Return the value for `make test`, or the long one for `make proofs`."""
    return long if os.environ.get("ROTA_TEST_LONG") == "1" else short
