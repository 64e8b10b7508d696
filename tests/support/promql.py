"""Parser for the PromQL that the project uses: metrics and labels of an expression."""

from __future__ import annotations

import re

from rota.web.metric_definitions import METRIC_FAMILIES

OF_PROMETHEUS = {"job", "instance", "le", "alertname", "alertstate"}
"""Labels that Prometheus adds to every series, and the labels of histograms and alerts."""

_PARTS = ("_bucket", "_sum", "_count")


def metrics(expression: str) -> set[str]:
    return set(re.findall(r"\brota_[a-z_]+", expression))


def family(metric: str) -> str:
    """Return the registered metric, for the parts of a histogram the histogram."""
    for part in _PARTS:
        whole = metric.removesuffix(part)
        if (
            whole != metric
            and whole in METRIC_FAMILIES
            and METRIC_FAMILIES[whole].kind == "histogram"
        ):
            return whole
    return metric


def labels_used(expression: str) -> set[str]:
    """Return the labels that an expression selects and aggregates by."""
    found = {name for inside in re.findall(r"\{([^}]*)\}", expression) for name in _names(inside)}
    for inside in re.findall(r"\b(?:by|on|ignoring|without|group_left)\s*\(([^)]*)\)", expression):
        found |= {name.strip() for name in inside.split(",") if name.strip()}
    return found


def _names(selection: str) -> list[str]:
    return re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selection)


def faults(expression: str) -> list[str]:
    """Return the metrics and labels that an expression names and that do not exist."""
    named = metrics(expression)
    unknown = sorted(name for name in named if family(name) not in METRIC_FAMILIES)
    if unknown:
        return [f"there is no metric {name}" for name in unknown]
    there = OF_PROMETHEUS.union(*(METRIC_FAMILIES[family(name)].labels for name in named))
    said = [f"no label {label}" for label in sorted(labels_used(expression) - there)]
    for name in sorted(named):
        kind = METRIC_FAMILIES[family(name)].kind
        rated = bool(re.search(rf"\b(?:rate|increase)\(\s*{name}\b", expression))
        if rated and kind == "gauge":
            said.append(f"{name} is a gauge: there is no rate of it")
        if not rated and kind != "gauge":
            said.append(f"{name} is a {kind}: only its rate says something")
    return said
