"""Files of `deploy/`, parsed as the tools that use them do.

A base consists of plain files, which need no tool. Overlays are built by the real kubectl.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]

from rota.cli.main import cli
from rota.model.settings import Settings
from support.places import DEPLOY

KUBERNETES = DEPLOY / "kubernetes"
AFTER = 5.0
"""Seconds beyond a process's own shutdown time before it is killed."""

Document = dict[str, Any]


@cache
def base() -> list[Document]:
    """Return the base as written: its files, and the settings it generates."""
    said = read(KUBERNETES / "base/kustomization.yaml")[0]
    documents = [each for name in said["resources"] for each in read(KUBERNETES / "base" / name)]
    for each in said["configMapGenerator"]:
        data = dict(line.split("=", 1) for line in each["literals"])
        documents.append({"kind": "ConfigMap", "metadata": {"name": each["name"]}, "data": data})
    return documents


@cache
def built(directory: str) -> list[Document]:
    return kustomized(KUBERNETES / directory)


def kustomized(directory: Path) -> list[Document]:
    """Return the documents that `kubectl apply -k` would send."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("there is no kubectl here, which puts overlays together")
    done = subprocess.run([program, "kustomize", str(directory)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def read(path: Path) -> list[Document]:
    return list(yaml.safe_load_all(path.read_text()))


def find_document(documents: Sequence[Document], kind: str, name: str) -> Document:
    [found] = [
        each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    return found


def of_kind(documents: Sequence[Document], kind: str) -> list[Document]:
    return [each for each in documents if each["kind"] == kind]


def pods(documents: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    """Yield each document that creates pods: its name, and its pod template."""
    for each in documents:
        if each["kind"] in ("Deployment", "Job"):
            yield each["metadata"]["name"], each["spec"]["template"]


def container(pod: Document) -> Document:
    [only] = pod["spec"]["containers"]
    return dict(only)


def environment(documents: Sequence[Document], pod: Document) -> dict[str, str]:
    """Return the environment variables of a pod's processes."""
    found: dict[str, str] = {}
    for source in container(pod).get("envFrom", []):
        found |= find_document(documents, "ConfigMap", source["configMapRef"]["name"])["data"]
    return found | {each["name"]: each["value"] for each in container(pod)["env"]}


@cache
def known_variables() -> frozenset[str]:
    """Return every variable that Rota reads: settings, database addresses and options of commands."""
    names = {f"ROTA_{each.name.upper()}" for each in fields(Settings)}
    for url in ("ROTA_DATABASE_URL", "ROTA_DIRECT_URL"):
        names |= {url, f"{url}_FILE"}
    for command in commands(cli):
        for parameter in command.params:
            said = parameter.envvar or ()
            names |= {said} if isinstance(said, str) else set(said)
    return frozenset(names)


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None, name
                yield from commands(found)


def parse_command(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Parse a command line as `rota` does, without running it; return the command and its options."""
    command: click.Command = cli
    context = command.make_context("rota", list(words))
    name: str | None = "rota"
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest and command.invoke_without_command:
            break
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, words
        command = found
        context = command.make_context(name, rest, parent=context)
    return context.command_path.removeprefix("rota "), context.params


def shutdown_seconds(environment: Mapping[str, str], *, balanced: bool) -> float:
    """Return the seconds that an instance may need to shut down, by its own settings."""
    settings = Settings.read(environment)
    return (settings.drain_delay if balanced else 0.0) + settings.drain_timeout + AFTER


def parse_duration(text: str) -> float:
    """Return the seconds of `65s`, `1m5s` or `65`."""
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s?)?", text)
    assert found, text
    return 60.0 * int(found[1] or 0) + int(found[2] or 0)
