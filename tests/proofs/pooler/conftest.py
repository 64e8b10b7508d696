"""Fixtures of `tests/proofs/pooler`."""

from __future__ import annotations

from support.pooled_services import fleet, pooler

__all__ = ["fleet", "pooler"]
