"""Autoscaling: the queries that KEDA is configured with, and their answers."""

from __future__ import annotations

import pytest

from support.keda_trigger import scaled_object, trigger
from support.manifests import KUBERNETES, base, built, find_document, of_kind, read
from support.promql import faults

DIRECTORIES = ("keda", "keda-prometheus")


@pytest.mark.parametrize("component", DIRECTORIES)
def test_keda_scales_workers_to_at_least_one(component: str) -> None:
    spec = scaled_object(component)["spec"]

    assert find_document(base(), "Deployment", spec["scaleTargetRef"]["name"])
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
    # The metric is a number of workers; with a target of 1, KEDA starts exactly that many.
    said = trigger(component)["metadata"]
    assert trigger(component)["metricType"] == "AverageValue"
    assert said.get("targetQueryValue", said.get("threshold")) == "1"


@pytest.mark.parametrize("component", DIRECTORIES)
def test_keda_source_outage_keeps_current_replicas(component: str) -> None:
    assert scaled_object(component)["spec"]["fallback"]["behavior"] == "currentReplicas"
    assert trigger(component)["metadata"].get("ignoreNullValues", "false") == "false"


def test_keda_scale_down_is_slow_and_bounded() -> None:
    for component in DIRECTORIES:
        advanced = scaled_object(component)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
        down = advanced["behavior"]["scaleDown"]
        assert down["stabilizationWindowSeconds"] >= 300
        assert down["policies"][0]["value"] <= 50


def test_keda_database_url_comes_from_shared_secret() -> None:
    documents = read(KUBERNETES / "components/keda/scaled-object.yaml")
    name = trigger("keda")["authenticationRef"]["name"]
    [secret] = find_document(documents, "TriggerAuthentication", name)["spec"]["secretTargetRef"]

    assert secret == {"parameter": "connection", "name": "rota-database", "key": "url"}


def test_keda_prometheus_query_uses_existing_metrics() -> None:
    assert faults(trigger("keda-prometheus")["metadata"]["query"]) == []


def test_keda_overlay_worker_has_no_fixed_replicas() -> None:
    """Otherwise each apply would reset the number of replicas."""
    worker = find_document(built("overlays/production"), "Deployment", "rota-worker")

    assert of_kind(built("overlays/production"), "ScaledObject")
    assert "replicas" not in worker["spec"]
    assert "replicas" in find_document(base(), "Deployment", "rota-worker")["spec"]
