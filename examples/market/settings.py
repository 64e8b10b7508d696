"""Settings that differ between a laptop, a test and production."""

from __future__ import annotations

import os

DATABASE = os.environ.get("ROTA_DATABASE_URL", "local")  # default: the embedded PostgreSQL

FEED = os.environ.get("MARKET_FEED", "http://127.0.0.1:8790")

LIMIT = int(os.environ.get("MARKET_LIMIT", "10"))
"""Requests a second that the feed allows, from all clients together."""

PACE = float(os.environ.get("MARKET_PACE", "1"))
"""Factor for all durations: with 0.1 the events of a minute take six seconds."""

LEASE = max(10 * PACE, 2)
"""Seconds after which a frozen or disconnected instance is replaced."""
