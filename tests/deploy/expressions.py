"""PromQL, as far as our own goes: which metrics an expression names, and by which labels it asks."""

from __future__ import annotations

import re

from rota.web.metric_definitions import METRIC_FAMILIES

OF_PROMETHEUS = {"job", "instance", "le", "alertname", "alertstate"}
"""Labels that every series has from whoever asked for it, and those that histograms and alerts have."""

_PARTS = ("_bucket", "_sum", "_count")


def metrics(expression: str) -> set[str]:
    return set(re.findall(r"\brota_[a-z_]+", expression))


def family(metric: str) -> str:
    """The metric as it is registered: a histogram's parts are its."""
    for part in _PARTS:
        whole = metric.removesuffix(part)
        if (
            whole != metric
            and whole in METRIC_FAMILIES
            and METRIC_FAMILIES[whole].kind == "histogram"
        ):
            return whole
    return metric


def asked(expression: str) -> set[str]:
    """The labels it selects and gathers by."""
    found = {name for inside in re.findall(r"\{([^}]*)\}", expression) for name in _names(inside)}
    for inside in re.findall(r"\b(?:by|on|ignoring|without|group_left)\s*\(([^)]*)\)", expression):
        found |= {name.strip() for name in inside.split(",") if name.strip()}
    return found


def _names(selection: str) -> list[str]:
    return re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selection)


def faults(expression: str) -> list[str]:
    """What is named in it and is not there."""
    named = metrics(expression)
    unknown = sorted(name for name in named if family(name) not in METRIC_FAMILIES)
    if unknown:
        return [f"there is no metric {name}" for name in unknown]
    there = OF_PROMETHEUS.union(*(METRIC_FAMILIES[family(name)].labels for name in named))
    said = [f"no label {label}" for label in sorted(asked(expression) - there)]
    for name in sorted(named):
        kind = METRIC_FAMILIES[family(name)].kind
        rated = bool(re.search(rf"\b(?:rate|increase)\(\s*{name}\b", expression))
        if rated and kind == "gauge":
            said.append(f"{name} is a gauge: there is no rate of it")
        if not rated and kind != "gauge":
            said.append(f"{name} is a {kind}: only its rate says something")
    return said
