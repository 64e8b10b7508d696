"""Fixtures of `support.cli_fixtures`."""

from __future__ import annotations

from support.cli_fixtures import (
    board,
    board_dsn,
    durable,
    empty_dsn,
    empty_rota,
    failed_flow,
    mill,
    mill_dsn,
    rota,
    shared_dsn,
    spare_dsn,
    terminal,
    worker,
)
from support.cli_workers import busy

__all__ = [
    "board",
    "board_dsn",
    "busy",
    "durable",
    "empty_dsn",
    "empty_rota",
    "failed_flow",
    "mill",
    "mill_dsn",
    "rota",
    "shared_dsn",
    "spare_dsn",
    "terminal",
    "worker",
]
