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
from support.demo_program import home, start_demo
from support.dev_project import dev, project

__all__ = [
    "board",
    "board_dsn",
    "dev",
    "durable",
    "empty_dsn",
    "empty_rota",
    "failed_flow",
    "home",
    "mill",
    "mill_dsn",
    "project",
    "rota",
    "shared_dsn",
    "spare_dsn",
    "start_demo",
    "terminal",
    "worker",
]
