"""Table of all operations."""

from __future__ import annotations

from typing import Any

from rota.operations import (
    access,
    alerts,
    bulk,
    coordination,
    maintenance,
    queues,
    runs,
    schedules,
    workers,
)
from rota.operations.declare import Operation

OPERATIONS: list[Operation[Any]] = [
    operation
    # The order matters: /runs/count must match before /runs/{run}.
    for module in (
        bulk,
        runs,
        schedules,
        workers,
        queues,
        maintenance,
        alerts,
        coordination,
        access,
    )
    for operation in module.group.operations
]
