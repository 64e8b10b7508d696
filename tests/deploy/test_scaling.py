"""Autoscaling: the queries that KEDA is configured with, and their answers."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Rota

from .expressions import faults
from .manifests import KUBERNETES, Document, base, built, of_kind, one, read

DIRECTORIES = ("keda", "keda-prometheus")


def scaled(component: str) -> Document:
    documents = read(KUBERNETES / "components" / component / "scaled-object.yaml")
    return one(documents, "ScaledObject", "rota-worker")


def trigger(component: str) -> dict[str, Any]:
    [only] = scaled(component)["spec"]["triggers"]
    return dict(only)


@pytest.mark.parametrize("component", DIRECTORIES)
def test_it_scales_the_workers_and_never_to_nobody(component: str) -> None:
    spec = scaled(component)["spec"]

    assert one(base(), "Deployment", spec["scaleTargetRef"]["name"])
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
    # The metric is a number of workers; with a target of 1, KEDA starts exactly that many.
    said = trigger(component)["metadata"]
    assert trigger(component)["metricType"] == "AverageValue"
    assert said.get("targetQueryValue", said.get("threshold")) == "1"


@pytest.mark.parametrize("component", DIRECTORIES)
def test_an_outage_of_whom_it_asks_sends_nobody_away(component: str) -> None:
    assert scaled(component)["spec"]["fallback"]["behavior"] == "currentReplicas"
    assert trigger(component)["metadata"].get("ignoreNullValues", "false") == "false"


def test_those_that_leave_are_few_at_a_time() -> None:
    for component in DIRECTORIES:
        advanced = scaled(component)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
        down = advanced["behavior"]["scaleDown"]
        assert down["stabilizationWindowSeconds"] >= 300
        assert down["policies"][0]["value"] <= 50


async def test_the_database_answers_what_it_is_asked(
    rota_app: Rota, db: AsyncConnection[tuple[Any, ...]]
) -> None:
    """The query returns one row with one numeric column."""
    query = trigger("keda")["metadata"]["query"].encode()
    hello = rota_app.task(_hello)

    [idle] = await (await db.execute(query)).fetchall()
    await hello.start()
    [busy] = await (await db.execute(query)).fetchall()

    assert idle == (0,)
    assert busy == (1,)


async def _hello() -> None: ...


def test_it_is_told_the_database_by_the_same_secret_as_everybody() -> None:
    documents = read(KUBERNETES / "components/keda/scaled-object.yaml")
    name = trigger("keda")["authenticationRef"]["name"]
    [secret] = one(documents, "TriggerAuthentication", name)["spec"]["secretTargetRef"]

    assert secret == {"parameter": "connection", "name": "rota-database", "key": "url"}


def test_prometheus_has_what_it_is_asked() -> None:
    assert faults(trigger("keda-prometheus")["metadata"]["query"]) == []


def test_with_it_the_manifests_say_no_number() -> None:
    """Otherwise each apply would reset the number of replicas."""
    worker = one(built("overlays/production"), "Deployment", "rota-worker")

    assert of_kind(built("overlays/production"), "ScaledObject")
    assert "replicas" not in worker["spec"]
    assert "replicas" in one(base(), "Deployment", "rota-worker")["spec"]
