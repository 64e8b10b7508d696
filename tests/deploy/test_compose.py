"""`deploy/docker-compose.yml`: all processes on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.model.settings import Settings

from .dockerfile import stages
from .manifests import DEPLOY, duration, known_variables, needed, parsed, read

[COMPOSE] = read(DEPLOY / "docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("migrate", "worker", "web")


@pytest.mark.parametrize("name", OURS)
def test_each_is_built_from_what_is_there(name: str) -> None:
    build = SERVICES[name]["build"]
    context = DEPLOY / build["context"]

    assert context.resolve() == DEPLOY.parent
    assert build["target"] in stages((context / build["dockerfile"]).read_text())
    assert list(build["args"]) == ["ROTA_VERSION"]


@pytest.mark.parametrize("name", OURS)
def test_each_is_told_what_rota_understands(name: str) -> None:
    said = SERVICES[name]["environment"]
    done, options = parsed(SERVICES[name]["command"])

    assert done == {"migrate": "db migrate", "worker": "worker", "web": "serve"}[name]
    assert said.keys() <= known_variables()
    Settings.read(said)
    if name != "migrate":
        assert options["health_port"] == 8081  # the port of the image's health check


@pytest.mark.parametrize("name", ["worker", "web"])
def test_nobody_is_killed_before_it_has_left(name: str) -> None:
    service = SERVICES[name]

    allowed = duration(service["stop_grace_period"])
    assert allowed >= needed(service["environment"], balanced=name == "web")


def test_everything_comes_in_its_turn() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["restart"] == "no"
    assert SERVICES["database"]["healthcheck"]["test"][1] == "pg_isready"
    for name in ("worker", "web"):
        condition = {"migrate": {"condition": "service_completed_successfully"}}
        assert SERVICES[name]["depends_on"] == condition
        assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", OURS)
def test_each_may_do_nothing_it_need_not(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service  # the image's user
    assert "privileged" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_is_in_the_file_or_in_an_environment(name: str) -> None:
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


def test_only_this_machine_is_served() -> None:
    opened = [port for service in SERVICES.values() for port in service.get("ports", [])]
    _, options = parsed(SERVICES["web"]["command"])

    assert opened == [f"127.0.0.1:8000:{options['port']}"]
    assert options["host"] == "0.0.0.0"


def test_images_of_others_are_said_with_their_version_and_their_data_is_kept() -> None:
    image, _, tag = SERVICES["database"]["image"].partition(":")

    assert image == "postgres"
    assert 14 <= int(tag.split("-")[0]) <= 18
    # Since PostgreSQL 18 the data directory is below this one.
    assert SERVICES["database"]["volumes"] == ["data:/var/lib/postgresql"]
    assert "data" in COMPOSE["volumes"]
