"""Fixtures of `support.localpg_fixtures`."""

from __future__ import annotations

from support.localpg_fixtures import (
    _clean_environment,
    _shared_data_directory,
    data_directory,
    new_data_directory,
    paused_binaries,
    shared_python,
    start_app,
    temporary_home,
)

__all__ = [
    "_clean_environment",
    "_shared_data_directory",
    "data_directory",
    "new_data_directory",
    "paused_binaries",
    "shared_python",
    "start_app",
    "temporary_home",
]
