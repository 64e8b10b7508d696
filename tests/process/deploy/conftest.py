"""Fixtures of `support.example_fixtures`."""

from __future__ import annotations

from support.example_fixtures import programs

__all__ = ["programs"]
