"""The image as the Dockerfile defines it, without a Docker daemon."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from support.container_image import IGNORED, IMAGE, context, last_instruction, stage_chain, steps
from support.dockerfile import exec_form_words
from support.failures import assert_none
from support.manifests import known_variables, parse_command
from support.places import DEPLOY, ROOT


@pytest.mark.parametrize("name", ["rota", "app"])
def test_image_base_is_slim_python_of_supported_version(name: str) -> None:
    first = stage_chain(IMAGE[name])[0]
    python = re.search(r"^ARG PYTHON=(\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)

    assert first.base == "python:${PYTHON}-slim"
    assert python
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {python[1]}" in said["classifiers"]


@pytest.mark.parametrize("name", ["rota", "app"])
def test_image_user_is_not_root(name: str) -> None:
    user, group = last_instruction(name, "USER").split(":")

    assert int(user) == int(group) == 10001
    [made] = [said for said in IMAGE["runtime"].all("RUN") if "useradd" in said]
    assert user in exec_form_words(made)


@pytest.mark.parametrize("name", ["rota", "app"])
def test_image_entrypoint_receives_signals_directly(name: str) -> None:
    assert exec_form_words(last_instruction(name, "ENTRYPOINT")) == ["rota"]
    assert exec_form_words(last_instruction(name, "CMD")) == ["--help"]
    assert not [said for each, said in steps(name) if each in ("SHELL", "STOPSIGNAL")]


def test_image_run_steps_use_exec_form() -> None:
    for stage in IMAGE.values():
        for said in stage.all("RUN"):
            exec_form_words(said)


def test_image_health_check_uses_liveness_path_and_exposed_port() -> None:
    asked = last_instruction("app", "HEALTHCHECK")
    options, command = asked.split("CMD ", 1)
    words = exec_form_words(command)

    assert words[:2] == ["python", "-c"]
    assert "/health/live" in words[2]
    exposed = last_instruction("app", "EXPOSE").split()
    assert re.findall(r":(\d+)/", words[2])[0] in exposed
    limit, patience = (
        float(re.findall(p, asked)[0]) for p in (r"--timeout=(\d+)s", r"timeout=(\d+)\)")
    )
    assert patience < limit
    assert "--start-period" in options


def test_image_version_is_set_in_the_last_step() -> None:
    assert IMAGE["app"].steps[-2:] == [
        ("ARG", 'ROTA_VERSION=""'),
        ("ENV", "ROTA_VERSION=${ROTA_VERSION}"),
    ]


def test_image_variables_are_known() -> None:
    text = (DEPLOY / "Dockerfile").read_text()

    assert set(re.findall(r"\bROTA_[A-Z_]+", text)) <= known_variables()


def test_image_header_commands_are_valid() -> None:
    said = re.findall(
        r"^#   docker run shop (.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )

    assert [parse_command(line.split())[0] for line in said] == ["worker", "serve", "db migrate"]


def test_image_build_context_equals_copied_files() -> None:
    sent = set(context())
    copied = set()
    for stage in IMAGE.values():
        assert not stage.all("ADD")
        for said in stage.all("COPY"):
            if said.startswith("--from="):
                assert said.split()[0].removeprefix("--from=") in IMAGE
                continue
            for source in said.split()[:-1]:
                found = {path for path in sent if path.is_relative_to(source)}
                assert found, f"{source} is not there, or kept back"
                copied |= found

    assert copied == sent


def test_dockerignore_excludes_private_and_unneeded_files() -> None:
    excluded = (
        ".git/config",
        ".env",
        ".venv/bin/python",
        "deploy/secrets/database_url",
        "deploy/docker-compose.yml",
        "src/rota/__pycache__/loop.cpython-313.pyc",
        "tests/conftest.py",
    )

    assert_none(path for path in excluded if not IGNORED(Path(path)))


def test_dockerignore_keeps_source_files() -> None:
    assert not IGNORED(Path("src/rota/store/sql/job/claim.sql"))
    assert not IGNORED(Path("deploy/example/shop.py"))
