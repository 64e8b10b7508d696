"""The image as the Dockerfile defines it, without a Docker daemon."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .dockerfile import Ignored, Stage, stages, told
from .manifests import DEPLOY, known_variables, parsed

ROOT = DEPLOY.parent
IMAGE = stages((DEPLOY / "Dockerfile").read_text())
IGNORED = Ignored((DEPLOY / "Dockerfile.dockerignore").read_text())


def line_of(stage: Stage) -> list[Stage]:
    """Return a stage and the stages it builds on, the first one first."""
    return [*(line_of(IMAGE[stage.base]) if stage.base in IMAGE else []), stage]


def steps(name: str) -> list[tuple[str, str]]:
    return [step for stage in line_of(IMAGE[name]) for step in stage.steps]


def last(name: str, instruction: str) -> str:
    return [said for each, said in steps(name) if each == instruction][-1]


def context() -> Iterator[Path]:
    """Yield the files of the build context."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if not IGNORED(Path(name)) and (ROOT / name).is_file():
            yield Path(name)


@pytest.mark.parametrize("name", ["rota", "app"])
def test_it_begins_with_something_slim_and_said_exactly(name: str) -> None:
    first = line_of(IMAGE[name])[0]
    python = re.search(r"^ARG PYTHON=(\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)

    assert first.base == "python:${PYTHON}-slim"
    assert python
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {python[1]}" in said["classifiers"]


@pytest.mark.parametrize("name", ["rota", "app"])
def test_it_runs_as_somebody_who_is_not_root(name: str) -> None:
    user, group = last(name, "USER").split(":")

    assert int(user) == int(group) == 10001
    [made] = [said for said in IMAGE["runtime"].all("RUN") if "useradd" in said]
    assert user in told(made)


@pytest.mark.parametrize("name", ["rota", "app"])
def test_nothing_stands_between_a_signal_and_the_program(name: str) -> None:
    assert told(last(name, "ENTRYPOINT")) == ["rota"]
    assert told(last(name, "CMD")) == ["--help"]
    assert not [said for each, said in steps(name) if each in ("SHELL", "STOPSIGNAL")]


def test_no_step_needs_a_shell() -> None:
    for stage in IMAGE.values():
        for said in stage.all("RUN"):
            told(said)


def test_what_asks_whether_it_lives_is_in_the_image_and_leaves_the_database_alone() -> None:
    asked = last("app", "HEALTHCHECK")
    options, command = asked.split("CMD ", 1)
    words = told(command)

    assert words[:2] == ["python", "-c"]
    assert "/health/live" in words[2]
    exposed = last("app", "EXPOSE").split()
    assert re.findall(r":(\d+)/", words[2])[0] in exposed
    limit, patience = (
        float(re.findall(p, asked)[0]) for p in (r"--timeout=(\d+)s", r"timeout=(\d+)\)")
    )
    assert patience < limit
    assert "--start-period" in options


def test_the_version_is_told_last_so_that_nothing_is_built_again_for_it() -> None:
    assert IMAGE["app"].steps[-2:] == [
        ("ARG", 'ROTA_VERSION=""'),
        ("ENV", "ROTA_VERSION=${ROTA_VERSION}"),
    ]


def test_every_variable_in_it_is_one_that_rota_reads() -> None:
    text = (DEPLOY / "Dockerfile").read_text()

    assert set(re.findall(r"\bROTA_[A-Z_]+", text)) <= known_variables()


def test_what_its_head_says_can_be_run() -> None:
    said = re.findall(
        r"^#   docker run shop (.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )

    assert [parsed(line.split())[0] for line in said] == ["worker", "serve", "db migrate"]


def test_all_that_is_copied_is_sent_and_nothing_else() -> None:
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


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".env",
        ".venv/bin/python",
        "deploy/secrets/database_url",
        "deploy/docker-compose.yml",
        "src/rota/__pycache__/loop.cpython-313.pyc",
        "tests/conftest.py",
    ],
)
def test_what_lies_about_is_kept_back(path: str) -> None:
    assert IGNORED(Path(path))


def test_the_source_is_sent() -> None:
    assert not IGNORED(Path("src/rota/store/sql/job/claim.sql"))
    assert not IGNORED(Path("deploy/example/shop.py"))
