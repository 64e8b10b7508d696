"""The dashboard and the rules, validated by Prometheus' own promtool."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from .test_board import BOARD, EXPRESSIONS
from .test_rules import FILE, RULES, TESTS


def promtool(*words: str) -> str:
    """Run promtool; fail the test if it reports an error."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool here; on Debian and Ubuntu: apt install prometheus")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_ones_that_prometheus_takes() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", str(FILE))


def test_each_rule_is_quiet_and_then_is_not() -> None:
    promtool("test", "rules", str(TESTS))


def test_every_expression_of_the_board_is_one_that_prometheus_reads(tmp_path: Path) -> None:
    asked = [*EXPRESSIONS, *(each["expr"] for each in BOARD["annotations"]["list"])]
    rules = []
    for number, text in enumerate(asked):
        for name, value in {"$job": "shop", "$queue": ".*", "$__rate_interval": "5m"}.items():
            text = text.replace(name, value)
        rules.append({"record": f"panel:{number}", "expr": text})
    file = tmp_path / "board.yml"
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))

    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))
