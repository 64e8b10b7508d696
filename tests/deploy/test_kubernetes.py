"""`deploy/kubernetes`: the resources that a cluster would create."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from starlette.routing import Route

from rota import Rota
from rota.model.settings import Settings
from rota.web.health import routes

from .manifests import (
    KUBERNETES,
    Document,
    base,
    built,
    container,
    environment,
    known_variables,
    kustomized,
    needed,
    of_kind,
    one,
    parsed,
    pods,
    read,
)

SETS = ("base", "production")
ROLES = ("web", "worker")


@pytest.fixture(params=SETS)
def documents(request: pytest.FixtureRequest) -> list[Document]:
    return base() if request.param == "base" else built("overlays/production")


def test_every_file_is_yaml_that_says_what_it_is() -> None:
    files = sorted(KUBERNETES.rglob("*.yaml"))

    assert len(files) > 10
    for file in files:
        for document in read(file):
            assert document["apiVersion"], file
            assert document["kind"], file


def test_no_file_is_left_out_by_those_that_list_them() -> None:
    for file in KUBERNETES.rglob("kustomization.yaml"):
        [said] = read(file)
        listed = {
            *said.get("resources", []),
            *(p["path"] for p in said.get("patches", []) if "path" in p),
        }
        there = {each.name for each in file.parent.glob("*.yaml")} - {"kustomization.yaml"}
        assert {name for name in listed if not name.startswith("..")} == there, file


@pytest.mark.parametrize(
    "directory",
    ["base", *(f"overlays/{each.name}" for each in (KUBERNETES / "overlays").iterdir())],
)
def test_what_is_to_be_applied_can_be_built(directory: str) -> None:
    kinds = {document["kind"] for document in built(directory)}

    assert kinds >= {"Deployment", "Job", "Service", "PodDisruptionBudget", "NetworkPolicy"}


def test_the_base_as_it_is_read_here_is_the_one_kubectl_builds() -> None:
    """Except for generated names of settings, which contain a hash, and the common label."""

    def names(documents: list[Document]) -> set[tuple[str, str]]:
        return {
            (each["kind"], "" if each["kind"] == "ConfigMap" else each["metadata"]["name"])
            for each in documents
        }

    theirs = built("base")
    assert names(base()) == names(theirs)
    for name, pod in pods(base()):
        assert environment(base(), pod) == environment(theirs, dict(pods(theirs))[name])


def test_components_that_no_overlay_uses_go_with_the_base_all_the_same(tmp_path: Path) -> None:
    """Without this test, unused components would break unnoticed."""
    used = {
        Path(name).name
        for file in (KUBERNETES / "overlays").rglob("kustomization.yaml")
        for name in read(file)[0]["components"]
    }
    others = {each.name for each in (KUBERNETES / "components").iterdir()} - used
    tree = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, tree)
    said = {"resources": ["../base"], "components": [f"../components/{each}" for each in others]}
    (tree / "tried").mkdir()
    (tree / "tried/kustomization.yaml").write_text(json.dumps(said))

    documents = kustomized(tree / "tried")

    assert others == {"egress", "keda-prometheus"}
    assert one(documents, "NetworkPolicy", "rota-egress")["spec"]["policyTypes"] == ["Egress"]
    assert "replicas" not in one(documents, "Deployment", "rota-worker")["spec"]


@pytest.mark.parametrize("role", ROLES)
def test_nobody_is_killed_before_it_has_left(documents: list[Document], role: str) -> None:
    pod = one(documents, "Deployment", f"rota-{role}")["spec"]["template"]

    allowed = pod["spec"]["terminationGracePeriodSeconds"]
    assert allowed >= needed(environment(documents, pod), balanced=role == "web")
    assert "lifecycle" not in container(pod)  # a preStop hook would use up part of the grace period


@pytest.mark.parametrize("role", ROLES)
def test_what_the_arithmetic_is_made_of_is_said_beside_it(
    documents: list[Document], role: str
) -> None:
    """In the image or in shared settings, one of the numbers could change without the other."""
    pod = one(documents, "Deployment", f"rota-{role}")["spec"]["template"]
    said = {each["name"] for each in container(pod)["env"]}

    assert "ROTA_DRAIN_TIMEOUT" in said
    assert ("ROTA_DRAIN_DELAY" in said) == (role == "web")


def test_the_load_balancer_has_seen_it_before_the_socket_closes(documents: list[Document]) -> None:
    pod = one(documents, "Deployment", "rota-web")["spec"]["template"]
    probe = container(pod)["readinessProbe"]

    noticed = probe["periodSeconds"] * probe["failureThreshold"] + 1
    assert Settings.read(environment(documents, pod)).drain_delay >= noticed


@pytest.mark.parametrize("role", ROLES)
def test_probes_ask_what_is_there_where_it_is(documents: list[Document], role: str) -> None:
    asked = container(one(documents, "Deployment", f"rota-{role}")["spec"]["template"])
    _, options = parsed(asked["args"])
    ports = {each["name"]: each["containerPort"] for each in asked["ports"]}

    assert ports["health"] == options["health_port"]
    assert options["health_host"] == "0.0.0.0"  # the kubelet connects to the pod's own address
    paths = {}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert asked[probe]["httpGet"]["port"] == "health"
        paths[probe] = asked[probe]["httpGet"]["path"]
    # The probes that restart a pod must not depend on the database.
    assert paths == {
        "startupProbe": "/health/live",
        "livenessProbe": "/health/live",
        "readinessProbe": "/health/ready",
    }
    # The database probe takes up to a second, so the timeout must be longer.
    assert asked["readinessProbe"]["timeoutSeconds"] > 1


def test_every_path_that_is_asked_is_served(rota_app: Rota) -> None:
    paths = {route.path for route in routes(rota_app) if isinstance(route, Route)}
    monitors = of_kind(built("overlays/production"), "PodMonitor")
    asked = {
        each["path"] for monitor in monitors for each in monitor["spec"]["podMetricsEndpoints"]
    }
    for _, pod in pods(base()):
        probes = (each for name, each in container(pod).items() if name.endswith("Probe"))
        asked |= {probe["httpGet"]["path"] for probe in probes}

    assert asked == {"/health/live", "/health/ready", "/metrics"}
    assert asked <= paths


def test_whoever_measures_asks_at_the_port_where_it_is_and_with_a_token() -> None:
    documents = built("overlays/production")
    [monitor] = of_kind(documents, "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    chosen = monitor["spec"]["selector"]

    assert endpoint["authorization"]["credentials"] == {"name": "rota-metrics", "key": "token"}
    [among] = chosen["matchExpressions"]
    for name, pod in pods(documents):
        labels, named = pod["metadata"]["labels"], container(pod).get("ports", [])
        seen = chosen["matchLabels"].items() <= labels.items()
        seen = seen and labels[among["key"]] in among["values"]
        assert seen == any(port["name"] == endpoint["port"] for port in named), name


def test_the_service_leads_to_the_port_that_is_served(documents: list[Document]) -> None:
    service = one(documents, "Service", "rota-web")
    web = one(documents, "Deployment", "rota-web")
    asked = container(web["spec"]["template"])
    _, options = parsed(asked["args"])
    ports = {each["name"]: each["containerPort"] for each in asked["ports"]}

    [port] = service["spec"]["ports"]
    assert ports[port["targetPort"]] == options["port"]
    assert options["host"] == "0.0.0.0"
    assert (
        service["spec"]["selector"].items() <= web["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize("role", ROLES)
def test_a_rollout_takes_nobody_away_before_another_is_there(
    documents: list[Document], role: str
) -> None:
    deployment = one(documents, "Deployment", f"rota-{role}")
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]

    assert rolling["maxUnavailable"] == 0
    assert rolling["maxSurge"] >= 1


@pytest.mark.parametrize("role", ROLES)
def test_whatever_selects_pods_selects_those_it_means(documents: list[Document], role: str) -> None:
    deployment = one(documents, "Deployment", f"rota-{role}")
    budget = one(documents, "PodDisruptionBudget", f"rota-{role}")
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    others = [pod["metadata"]["labels"] for name, pod in pods(documents) if name != f"rota-{role}"]

    assert {each["topologyKey"] for each in spread} >= {"kubernetes.io/hostname"}
    for chosen in (deployment["spec"], budget["spec"], *spread):
        wanted = chosen.get("selector", chosen.get("labelSelector"))["matchLabels"].items()
        assert wanted <= deployment["spec"]["template"]["metadata"]["labels"].items()
        for other in others:
            assert not wanted <= other.items()
    assert budget["spec"]["maxUnavailable"] == 1


def test_pods_may_do_nothing_they_need_not(documents: list[Document]) -> None:
    for name, pod in pods(documents):
        whole, inside = pod["spec"]["securityContext"], container(pod)["securityContext"]
        assert whole["runAsNonRoot"] is True, name
        assert whole["runAsUser"] == whole["runAsGroup"] == whole["fsGroup"] == 10001, name
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert inside["allowPrivilegeEscalation"] is False, name
        assert inside["readOnlyRootFilesystem"] is True, name
        assert inside["capabilities"] == {"drop": ["ALL"]}, name
        assert pod["spec"]["automountServiceAccountToken"] is False, name


def test_pods_say_what_they_need(documents: list[Document]) -> None:
    for name, pod in pods(documents):
        resources = container(pod)["resources"]
        assert set(resources["requests"]) == {"cpu", "memory"}, name
        assert set(resources["limits"]) == {"memory"}, name


def test_the_databases_url_is_in_a_secret_and_read_from_a_file(documents: list[Document]) -> None:
    assert not of_kind(documents, "Secret")
    for name, pod in pods(documents):
        asked = container(pod)
        told = Path(environment(documents, pod)["ROTA_DATABASE_URL_FILE"])
        [mount] = [each for each in asked["volumeMounts"] if told.parent == Path(each["mountPath"])]
        [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
        assert mount["readOnly"] is True, name
        assert volume["secret"]["secretName"] == "rota-database", name
        # Owned by root, readable by the pod's group (fsGroup), and by no other user.
        assert volume["secret"]["defaultMode"] == 0o440, name
        assert told.name == "url"


def test_every_variable_is_one_that_rota_reads(documents: list[Document]) -> None:
    for name, pod in pods(documents):
        said = environment(documents, pod)
        assert said.keys() <= known_variables(), name
        Settings.read(said)


def test_every_command_is_one_that_rota_has(documents: list[Document]) -> None:
    done = {name: parsed(container(pod)["args"])[0] for name, pod in pods(documents)}

    assert done == {"rota-worker": "worker", "rota-web": "serve", "rota-migrate": "db migrate"}
    for name, pod in pods(documents):
        assert "command" not in container(pod), name  # the image's entry point, without a shell


def test_a_migration_is_done_once_and_given_up_some_time(documents: list[Document]) -> None:
    job = one(documents, "Job", "rota-migrate")

    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert job["spec"]["activeDeadlineSeconds"] > 0
    assert job["spec"]["backoffLimit"] > 0
    assert job["spec"]["ttlSecondsAfterFinished"] > 0


def test_all_run_the_same_image(documents: list[Document]) -> None:
    [image] = {container(pod)["image"] for _, pod in pods(documents)}

    assert image.startswith("registry.example.com/shop:") or image == "shop"
    assert not image.endswith(":latest")


def test_nobody_comes_in_but_by_the_doors_that_are_open(documents: list[Document]) -> None:
    policies = of_kind(documents, "NetworkPolicy")
    web, metrics = (
        one(policies, "NetworkPolicy", f"rota-{each}") for each in ("web", "monitoring")
    )

    assert web["spec"]["ingress"] == [{"ports": [{"port": "http"}]}]
    [door] = metrics["spec"]["ingress"]
    assert door["ports"] == [{"port": "health"}]
    assert door["from"]
    for _, pod in pods(documents):
        # A pod selected by a policy with Ingress accepts only the listed traffic.
        assert (
            metrics["spec"]["podSelector"]["matchLabels"].items()
            <= pod["metadata"]["labels"].items()
        )
