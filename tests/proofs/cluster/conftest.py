"""Fixtures of `support.fleet_fixtures`."""

from __future__ import annotations

from support.fleet_fixtures import fleet
from support.flow_races import flow_fleet
from support.leader_processes import start
from support.service_kills import monitors
from support.signal_races import signal_fleet

__all__ = ["fleet", "flow_fleet", "monitors", "signal_fleet", "start"]
