"""Fixtures of `support.outage_fixtures`."""

from __future__ import annotations

from support.outage_fixtures import primary_and_standby, server, worker

__all__ = ["primary_and_standby", "server", "worker"]
