"""Fixtures of `support.alert_fixtures`."""

from __future__ import annotations

from support.alert_fixtures import fleet, manual_evaluator, short_rounds

__all__ = ["fleet", "manual_evaluator", "short_rounds"]
