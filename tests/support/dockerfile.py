"""Parser for a Dockerfile: stages and instructions. It rejects everything that ours does not use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [said for name, said in self.steps if name == instruction]


def stages(text: str) -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    stage: Stage | None = None
    for instruction, said in _instructions(text):
        if instruction == "FROM":
            words = said.split()
            assert len(words) == 3, f"a stage wants a name: {said}"
            assert words[1] == "AS", f"a stage wants a name: {said}"
            stage = found[words[2]] = Stage(words[0], words[2])
        elif stage is not None:
            stage.steps.append((instruction, said))
        else:
            assert instruction == "ARG", instruction
    return found


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    for whole in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if whole.strip():
            instruction, said = whole.split(maxsplit=1)
            yield instruction, said


def exec_form_words(said: str) -> list[str]:
    """Return the words of a command in exec form; raise for the shell form."""
    assert said.startswith("["), f"runs in a shell: {said}"
    words = json.loads(said)
    assert all(isinstance(word, str) for word in words)
    return list(words)


class DockerIgnore:
    """Paths that a .dockerignore excludes: the last matching line decides; `!` includes a path again."""

    def __init__(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        self._rules = [line for line in lines if line and not line.startswith("#")]

    def __call__(self, path: Path) -> bool:
        ignored = False
        for rule in self._rules:
            pattern = rule.removeprefix("!")
            if any(_matches(part, pattern) for part in (path, *path.parents)):
                ignored = not rule.startswith("!")
        return ignored


def _matches(path: Path, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch(path.name, pattern[3:])
    return len(path.parts) == len(Path(pattern).parts) and fnmatch(path.as_posix(), pattern)
