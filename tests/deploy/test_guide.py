"""docs/guides/deploying.md: its statements match the files in `deploy/`."""

from __future__ import annotations

import re

import pytest

from .manifests import (
    DEPLOY,
    base,
    container,
    environment,
    known_variables,
    needed,
    one,
    parsed,
)
from .test_scaling import trigger

ROOT = DEPLOY.parent
GUIDE = ROOT / "docs/guides/deploying.md"
TEXT = GUIDE.read_text()


def test_every_file_it_names_is_there() -> None:
    named = set(re.findall(r"(?<![\w/])deploy/[\w./*@-]*[\w*]", TEXT))

    assert len(named) > 5
    for path in named:
        assert list(ROOT.glob(path)), path
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT):
        assert (GUIDE.parent / link).exists(), link


def test_every_part_of_the_manifests_is_told_of() -> None:
    for kind in ("components", "overlays"):
        for each in (DEPLOY / "kubernetes" / kind).iterdir():
            assert f"`{kind}/{each.name}`" in TEXT


def test_every_variable_it_names_is_read() -> None:
    assert set(re.findall(r"\bROTA_[A-Z_]+[A-Z]", TEXT)) <= known_variables()


@pytest.mark.parametrize("line", sorted(set(re.findall(r"`(rota [a-z][^`]*)`", TEXT))))
def test_every_command_it_names_can_be_given(line: str) -> None:
    words = line.split()[1:]
    wanting = {"worker": ["shop:app"], "serve": ["shop:api"], "drain": ["1"]}
    parsed([*words, *(wanting[words[0]] if words[-1] in wanting else [])])


@pytest.mark.parametrize(("role", "column"), [("web", 0), ("worker", 1)])
def test_its_arithmetic_is_that_of_the_manifests(role: str, column: int) -> None:
    pod = one(base(), "Deployment", f"rota-{role}")["spec"]["template"]
    said = {
        line.split("|")[1].strip(): line.split("|")[2 + column]
        for line in TEXT.splitlines()
        if line.startswith("| ") and line.count("|") == 4
    }
    [grace] = [cell for head, cell in said.items() if head.startswith("`ROTA_DRAIN_TIMEOUT`")]
    [allowed] = [cell for head, cell in said.items() if head.startswith("time before SIGKILL")]

    whole = pod["spec"]["terminationGracePeriodSeconds"]
    assert f"**{environment(base(), pod)['ROTA_DRAIN_TIMEOUT']}**" in grace
    assert allowed.strip().endswith(f"= **{whole}**")
    numbers = [float(each) for each in re.findall(r"\d+", allowed.split("=")[0])]
    assert sum(numbers) == whole == needed(environment(base(), pod), balanced=role == "web")
    if role == "web":
        [delay] = [cell for head, cell in said.items() if head.startswith("`ROTA_DRAIN_DELAY`")]
        probe = container(pod)["readinessProbe"]
        assert f"{probe['periodSeconds']} × {probe['failureThreshold']} + 1" in delay
        assert f"**{environment(base(), pod)['ROTA_DRAIN_DELAY']}**" in delay


def test_what_it_has_keda_ask_is_what_the_component_asks() -> None:
    assert trigger("keda")["metadata"]["query"] in TEXT


def test_compose_is_told_the_same_way_in_both_places() -> None:
    head = (DEPLOY / "docker-compose.yml").read_text().split("\nname:")[0]
    lines = re.findall(r"^#   (.+)$", head, re.MULTILINE)

    assert len(lines) == 5
    assert "\n".join(lines) in TEXT
