"""Fixtures of `support.stage_fixtures`."""

from __future__ import annotations

from support.stage_fixtures import (
    election,
    election_dsn,
    own_stage,
    stage,
    stopped_clock,
    store_dsn,
)

__all__ = ["election", "election_dsn", "own_stage", "stage", "stopped_clock", "store_dsn"]
