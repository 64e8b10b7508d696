"""The dashboard and the rules, validated by Prometheus' own promtool."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.prometheus_files import BOARD, EXPRESSIONS, FILE, RULES, TESTS


def promtool(*words: str) -> str:
    """Run promtool; fail the test if it reports an error."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool here; on Debian and Ubuntu: apt install prometheus")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_alert_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", str(FILE))


def test_promtool_alert_rule_tests_pass() -> None:
    promtool("test", "rules", str(TESTS))


def test_promtool_accepts_dashboard_expressions(tmp_path: Path) -> None:
    asked = [*EXPRESSIONS, *(each["expr"] for each in BOARD["annotations"]["list"])]
    rules = []
    for number, text in enumerate(asked):
        for name, value in {"$job": "shop", "$queue": ".*", "$__rate_interval": "5m"}.items():
            text = text.replace(name, value)
        rules.append({"record": f"panel:{number}", "expr": text})
    file = tmp_path / "board.yml"
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))

    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))
