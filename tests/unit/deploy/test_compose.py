"""`deploy/docker-compose.yml`: all processes on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.model.settings import Settings
from support.dockerfile import stages
from support.manifests import known_variables, parse_command, parse_duration, read, shutdown_seconds
from support.places import DEPLOY

[COMPOSE] = read(DEPLOY / "docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("migrate", "worker", "web")


@pytest.mark.parametrize("name", OURS)
def test_compose_service_is_built_from_existing_stage(name: str) -> None:
    build = SERVICES[name]["build"]
    context = DEPLOY / build["context"]

    assert context.resolve() == DEPLOY.parent
    assert build["target"] in stages((context / build["dockerfile"]).read_text())
    assert list(build["args"]) == ["ROTA_VERSION"]


@pytest.mark.parametrize("name", OURS)
def test_compose_service_has_valid_command_and_variables(name: str) -> None:
    said = SERVICES[name]["environment"]
    done, options = parse_command(SERVICES[name]["command"])

    assert done == {"migrate": "db migrate", "worker": "worker", "web": "serve"}[name]
    assert said.keys() <= known_variables()
    Settings.read(said)
    if name != "migrate":
        assert options["health_port"] == 8081  # the port of the image's health check


@pytest.mark.parametrize("name", ["worker", "web"])
def test_compose_stop_grace_period_covers_the_drain(name: str) -> None:
    service = SERVICES[name]

    allowed = parse_duration(service["stop_grace_period"])
    assert allowed >= shutdown_seconds(service["environment"], balanced=name == "web")


def test_compose_services_start_after_migration() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["restart"] == "no"
    assert SERVICES["database"]["healthcheck"]["test"][1] == "pg_isready"
    for name in ("worker", "web"):
        condition = {"migrate": {"condition": "service_completed_successfully"}}
        assert SERVICES[name]["depends_on"] == condition
        assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", OURS)
def test_compose_service_runs_without_privileges(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service  # the image's user
    assert "privileged" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_compose_secrets_are_passed_as_files(name: str) -> None:
    service = SERVICES[name]

    assert not any(
        "PASSWORD" in each and not each.endswith("_FILE") for each in service["environment"]
    )
    for variable, value in service["environment"].items():
        assert "@" not in value, variable
        if variable.endswith("_FILE"):
            [secret] = service["secrets"]
            assert value == f"/run/secrets/{secret}"
            assert Path(COMPOSE["secrets"][secret]["file"]).parent == Path("secrets")


def test_compose_web_port_is_bound_to_localhost() -> None:
    opened = [port for service in SERVICES.values() for port in service.get("ports", [])]
    _, options = parse_command(SERVICES["web"]["command"])

    assert opened == [f"127.0.0.1:8000:{options['port']}"]
    assert options["host"] == "0.0.0.0"


def test_compose_database_image_has_version_and_data_volume() -> None:
    image, _, tag = SERVICES["database"]["image"].partition(":")

    assert image == "postgres"
    assert 14 <= int(tag.split("-")[0]) <= 18
    # Since PostgreSQL 18 the data directory is below this one.
    assert SERVICES["database"]["volumes"] == ["data:/var/lib/postgresql"]
    assert "data" in COMPOSE["volumes"]
