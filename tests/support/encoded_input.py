"""Input of a run as the database stores it."""

from __future__ import annotations

import json
from typing import Any

from rota.model.flow import FlowPlan

LIMIT = 256 * 1024


def encoded(plan: FlowPlan, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    whole, shares = plan.encode(given, LIMIT)
    return json.loads(whole), {name: json.loads(share) for name, share in shares.items()}
