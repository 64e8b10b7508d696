"""The container image of `deploy/`: its stages, its build context and its commands."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.dockerfile import DockerIgnore, Stage, stages
from support.places import DEPLOY, ROOT

IMAGE = stages((DEPLOY / "Dockerfile").read_text())
IGNORED = DockerIgnore((DEPLOY / "Dockerfile.dockerignore").read_text())


def stage_chain(stage: Stage) -> list[Stage]:
    """Return a stage and the stages it builds on, the first one first."""
    return [*(stage_chain(IMAGE[stage.base]) if stage.base in IMAGE else []), stage]


def steps(name: str) -> list[tuple[str, str]]:
    return [step for stage in stage_chain(IMAGE[name]) for step in stage.steps]


def last_instruction(name: str, instruction: str) -> str:
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
