"""Alerting rules and the Grafana dashboard of `deploy/`."""

from __future__ import annotations

import json
from typing import Any

from support.manifests import read
from support.places import DEPLOY

FILE = DEPLOY / "prometheus/rota.rules.yml"
TESTS = DEPLOY / "prometheus/rota.rules.test.yml"
RULES: list[dict[str, Any]] = [rule for group in read(FILE)[0]["groups"] for rule in group["rules"]]
BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/rota.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
