"""Fixtures of `support.tracing_fixtures`."""

from __future__ import annotations

from support.tracing_fixtures import exported, short_inline_wait

__all__ = ["exported", "short_inline_wait"]
