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
from support.manifests import (
    KUBERNETES,
    Document,
    base,
    built,
    container,
    environment,
    find_document,
    known_variables,
    kustomized,
    of_kind,
    parse_command,
    pods,
    read,
    shutdown_seconds,
)

SETS = ("base", "production")
ROLES = ("web", "worker")


@pytest.fixture(params=SETS)
def documents(request: pytest.FixtureRequest) -> list[Document]:
    return base() if request.param == "base" else built("overlays/production")


def test_kubernetes_files_have_api_version_and_kind() -> None:
    files = sorted(KUBERNETES.rglob("*.yaml"))

    assert len(files) > 10
    for file in files:
        for document in read(file):
            assert document["apiVersion"], file
            assert document["kind"], file


def test_kustomizations_list_every_file() -> None:
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
def test_kubernetes_base_and_overlays_can_be_built(directory: str) -> None:
    kinds = {document["kind"] for document in built(directory)}

    assert kinds >= {"Deployment", "Job", "Service", "PodDisruptionBudget", "NetworkPolicy"}


def test_kubernetes_parsed_base_equals_kubectl_output() -> None:
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


def test_kubernetes_unused_components_build_with_the_base(tmp_path: Path) -> None:
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
    assert find_document(documents, "NetworkPolicy", "rota-egress")["spec"]["policyTypes"] == [
        "Egress"
    ]
    assert "replicas" not in find_document(documents, "Deployment", "rota-worker")["spec"]


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_grace_period_covers_the_drain(documents: list[Document], role: str) -> None:
    pod = find_document(documents, "Deployment", f"rota-{role}")["spec"]["template"]

    allowed = pod["spec"]["terminationGracePeriodSeconds"]
    assert allowed >= shutdown_seconds(environment(documents, pod), balanced=role == "web")
    assert "lifecycle" not in container(pod)  # a preStop hook would use up part of the grace period


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_drain_variables_are_set_in_the_container(
    documents: list[Document], role: str
) -> None:
    """In the image or in shared settings, one of the numbers could change without the other."""
    pod = find_document(documents, "Deployment", f"rota-{role}")["spec"]["template"]
    said = {each["name"] for each in container(pod)["env"]}

    assert "ROTA_DRAIN_TIMEOUT" in said
    assert ("ROTA_DRAIN_DELAY" in said) == (role == "web")


def test_kubernetes_drain_delay_covers_readiness_detection(documents: list[Document]) -> None:
    pod = find_document(documents, "Deployment", "rota-web")["spec"]["template"]
    probe = container(pod)["readinessProbe"]

    noticed = probe["periodSeconds"] * probe["failureThreshold"] + 1
    assert Settings.read(environment(documents, pod)).drain_delay >= noticed


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_probes_use_health_port_and_paths(documents: list[Document], role: str) -> None:
    asked = container(find_document(documents, "Deployment", f"rota-{role}")["spec"]["template"])
    _, options = parse_command(asked["args"])
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


def test_kubernetes_probe_and_metrics_paths_are_served(app: Rota) -> None:
    paths = {route.path for route in routes(app) if isinstance(route, Route)}
    monitors = of_kind(built("overlays/production"), "PodMonitor")
    asked = {
        each["path"] for monitor in monitors for each in monitor["spec"]["podMetricsEndpoints"]
    }
    for _, pod in pods(base()):
        probes = (each for name, each in container(pod).items() if name.endswith("Probe"))
        asked |= {probe["httpGet"]["path"] for probe in probes}

    assert asked == {"/health/live", "/health/ready", "/metrics"}
    assert asked <= paths


def test_kubernetes_pod_monitor_selects_health_ports_with_token() -> None:
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


def test_kubernetes_service_targets_the_served_port(documents: list[Document]) -> None:
    service = find_document(documents, "Service", "rota-web")
    web = find_document(documents, "Deployment", "rota-web")
    asked = container(web["spec"]["template"])
    _, options = parse_command(asked["args"])
    ports = {each["name"]: each["containerPort"] for each in asked["ports"]}

    [port] = service["spec"]["ports"]
    assert ports[port["targetPort"]] == options["port"]
    assert options["host"] == "0.0.0.0"
    assert (
        service["spec"]["selector"].items() <= web["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_rollout_starts_new_pod_before_stopping_old_one(
    documents: list[Document], role: str
) -> None:
    deployment = find_document(documents, "Deployment", f"rota-{role}")
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]

    assert rolling["maxUnavailable"] == 0
    assert rolling["maxSurge"] >= 1


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_selectors_match_only_their_role(documents: list[Document], role: str) -> None:
    deployment = find_document(documents, "Deployment", f"rota-{role}")
    budget = find_document(documents, "PodDisruptionBudget", f"rota-{role}")
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    others = [pod["metadata"]["labels"] for name, pod in pods(documents) if name != f"rota-{role}"]

    assert {each["topologyKey"] for each in spread} >= {"kubernetes.io/hostname"}
    for chosen in (deployment["spec"], budget["spec"], *spread):
        wanted = chosen.get("selector", chosen.get("labelSelector"))["matchLabels"].items()
        assert wanted <= deployment["spec"]["template"]["metadata"]["labels"].items()
        for other in others:
            assert not wanted <= other.items()
    assert budget["spec"]["maxUnavailable"] == 1


def test_kubernetes_pods_run_without_privileges(documents: list[Document]) -> None:
    for name, pod in pods(documents):
        whole, inside = pod["spec"]["securityContext"], container(pod)["securityContext"]
        assert whole["runAsNonRoot"] is True, name
        assert whole["runAsUser"] == whole["runAsGroup"] == whole["fsGroup"] == 10001, name
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert inside["allowPrivilegeEscalation"] is False, name
        assert inside["readOnlyRootFilesystem"] is True, name
        assert inside["capabilities"] == {"drop": ["ALL"]}, name
        assert pod["spec"]["automountServiceAccountToken"] is False, name


def test_kubernetes_pods_have_resource_requests_and_memory_limit(documents: list[Document]) -> None:
    for name, pod in pods(documents):
        resources = container(pod)["resources"]
        assert set(resources["requests"]) == {"cpu", "memory"}, name
        assert set(resources["limits"]) == {"memory"}, name


def test_kubernetes_database_url_is_read_from_secret_file(documents: list[Document]) -> None:
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


def test_kubernetes_variables_are_known_and_valid(documents: list[Document]) -> None:
    for name, pod in pods(documents):
        said = environment(documents, pod)
        assert said.keys() <= known_variables(), name
        Settings.read(said)


def test_kubernetes_commands_are_valid(documents: list[Document]) -> None:
    done = {name: parse_command(container(pod)["args"])[0] for name, pod in pods(documents)}

    assert done == {"rota-worker": "worker", "rota-web": "serve", "rota-migrate": "db migrate"}
    for name, pod in pods(documents):
        assert "command" not in container(pod), name  # the image's entry point, without a shell


def test_kubernetes_migration_job_has_deadline_and_no_restart(documents: list[Document]) -> None:
    job = find_document(documents, "Job", "rota-migrate")

    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert job["spec"]["activeDeadlineSeconds"] > 0
    assert job["spec"]["backoffLimit"] > 0
    assert job["spec"]["ttlSecondsAfterFinished"] > 0


def test_kubernetes_pods_use_one_versioned_image(documents: list[Document]) -> None:
    [image] = {container(pod)["image"] for _, pod in pods(documents)}

    assert image.startswith("registry.example.com/shop:") or image == "shop"
    assert not image.endswith(":latest")


def test_kubernetes_network_policies_allow_only_http_and_health(documents: list[Document]) -> None:
    policies = of_kind(documents, "NetworkPolicy")
    web, metrics = (
        find_document(policies, "NetworkPolicy", f"rota-{each}") for each in ("web", "monitoring")
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
