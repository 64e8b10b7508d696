"""What differs between a laptop, a test and the real thing."""

from __future__ import annotations

import os

DATABASE = os.environ.get("ROTA_DATABASE_URL", "local")  # else the embedded PostgreSQL

FEED = os.environ.get("MARKET_FEED", "http://127.0.0.1:8790")

LIMIT = int(os.environ.get("MARKET_LIMIT", "10"))
"""Requests a second that the feed lets through, whoever they come from."""

PACE = float(os.environ.get("MARKET_PACE", "1"))
"""0.1: what happens every minute happens every six seconds."""

LEASE = max(10 * PACE, 2)
"""Seconds after which an instance that is frozen or cut off is replaced."""
