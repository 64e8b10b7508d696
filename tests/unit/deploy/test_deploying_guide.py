"""docs/guides/deploying.md: its statements match the files in `deploy/`."""

from __future__ import annotations

import re

import click
import pytest

from support.failures import assert_none
from support.keda_trigger import trigger
from support.manifests import (
    base,
    container,
    environment,
    find_document,
    known_variables,
    parse_command,
    shutdown_seconds,
)
from support.places import DEPLOY, ROOT

GUIDE = ROOT / "docs/guides/deploying.md"
TEXT = GUIDE.read_text()


def test_deploying_guide_files_and_links_exist() -> None:
    named = set(re.findall(r"(?<![\w/])deploy/[\w./*@-]*[\w*]", TEXT))

    assert len(named) > 5
    for path in named:
        assert list(ROOT.glob(path)), path
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT):
        assert (GUIDE.parent / link).exists(), link


def test_deploying_guide_has_every_component_and_overlay() -> None:
    for kind in ("components", "overlays"):
        for each in (DEPLOY / "kubernetes" / kind).iterdir():
            assert f"`{kind}/{each.name}`" in TEXT


def test_deploying_guide_names_only_known_variables() -> None:
    assert set(re.findall(r"\bROTA_[A-Z_]+[A-Z]", TEXT)) <= known_variables()


def test_deploying_guide_commands_are_valid() -> None:
    wanting = {"worker": ["shop:app"], "serve": ["shop:api"], "drain": ["1"]}
    found = []
    for line in sorted(set(re.findall(r"`(rota [a-z][^`]*)`", TEXT))):
        words = line.split()[1:]
        try:
            parse_command([*words, *(wanting[words[0]] if words[-1] in wanting else [])])
        except click.ClickException as error:
            found.append(f"{line}: {error.message}")

    assert_none(found)


@pytest.mark.parametrize(("role", "column"), [("web", 0), ("worker", 1)])
def test_deploying_guide_drain_times_match_manifests(role: str, column: int) -> None:
    pod = find_document(base(), "Deployment", f"rota-{role}")["spec"]["template"]
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
    assert (
        sum(numbers) == whole == shutdown_seconds(environment(base(), pod), balanced=role == "web")
    )
    if role == "web":
        [delay] = [cell for head, cell in said.items() if head.startswith("`ROTA_DRAIN_DELAY`")]
        probe = container(pod)["readinessProbe"]
        assert f"{probe['periodSeconds']} × {probe['failureThreshold']} + 1" in delay
        assert f"**{environment(base(), pod)['ROTA_DRAIN_DELAY']}**" in delay


def test_deploying_guide_keda_query_matches_component() -> None:
    assert trigger("keda")["metadata"]["query"] in TEXT


def test_deploying_guide_compose_commands_match_the_file() -> None:
    head = (DEPLOY / "docker-compose.yml").read_text().split("\nname:")[0]
    lines = re.findall(r"^#   (.+)$", head, re.MULTILINE)

    assert len(lines) == 5
    assert "\n".join(lines) in TEXT
