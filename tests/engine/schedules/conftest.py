"""Fixtures of `support.schedule_fixtures`."""

from __future__ import annotations

from support.schedule_fixtures import app, seen

__all__ = ["app", "seen"]
