"""Fixtures of `support.fleet_fixtures`."""

from __future__ import annotations

from support.fleet_fixtures import fleet

__all__ = ["fleet"]
