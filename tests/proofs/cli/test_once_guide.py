"""The guide to `once` and rate limits: its programs print the output it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.places import ROOT

PAGE = (ROOT / "docs" / "guides" / "once-and-limits.md").read_text("utf-8")
BLOCK = re.compile(r"```(python)?\n(.*?)```", re.DOTALL)


def shown(name: str) -> tuple[str, list[list[str]]]:
    """Return a program of the page, and the output of each start."""
    after = PAGE[PAGE.index(f"`{name}`:\n") :]
    (_, code), *others = BLOCK.findall(after)
    said = next(text for _, text in others if text.startswith(f"$ python {name}"))
    return code, [each.splitlines()[1:] for each in said.split("$ ")[1:]]


def start(program: Path, dsn: str, many: int) -> list[str]:
    environment = {**os.environ, "ROTA_DATABASE_URL": dsn}
    running = [
        subprocess.Popen(
            [sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(many)
    ]
    said = [each.communicate(timeout=60)[0].splitlines() for each in running]
    assert [each.returncode for each in running] == [0] * many
    return [line for lines in said for line in lines]


@pytest.mark.parametrize("name", ["charge.py", "filings.py"])
def test_once_guide_programs_print_the_shown_output(
    name: str, tmp_path: Path, rota_dsn: str
) -> None:
    code, said = shown(name)
    (tmp_path / name).write_text(code)

    for number, lines in enumerate(said):
        many = 2 if name == "charge.py" and number == 0 else 1
        assert sorted(start(tmp_path / name, rota_dsn, many)) == sorted(lines)


def test_once_guide_two_programs_share_a_rate_limit(tmp_path: Path, rota_dsn: str) -> None:
    code, [lines] = shown("feed.py")
    (tmp_path / "feed.py").write_text(code)

    said = start(tmp_path / "feed.py", rota_dsn, 2)

    number = re.compile(r"[\d.]+(?= s)")
    assert [number.sub("", line) for line in said] == [number.sub("", line) for line in lines]
    # The programs may not have started at the same time.
    assert sum(float(number.findall(line)[0]) for line in said) > 1.7


def test_once_guide_sync_example_returns_its_result(rota_dsn: str) -> None:
    code = next(text for _, text in BLOCK.findall(PAGE) if text.startswith("# plainly.py"))
    plainly: Any = ModuleType("plainly")
    exec(compile(code, "plainly.py", "exec"), vars(plainly))
    plainly.app.database.switch(rota_dsn)
    try:
        assert plainly.plainly() == "receipt for 42"
    finally:
        plainly.app.close_sync()
