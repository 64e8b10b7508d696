"""`import rota` is light: it loads no driver, no command line and no pages."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import rota

HEAVY = (
    *("psycopg", "psycopg_pool", "asyncpg", "sqlalchemy", "django", "pydantic", "click", "rich"),
    *("cronsim", "zoneinfo"),
)
EDGES = ("rota.cli", "rota.web", "rota.testing", "rota.localpg", "rota.engine.worker.worker")

REPORT = """
import json, sys, time
began = time.perf_counter()
import {module}
took = time.perf_counter() - began
print(json.dumps({{"modules": sorted(sys.modules), "took": took}}))
"""

# Replaces the package `rota` by an empty one, to load the plugin without the rest of the package.
ALONE = """
import sys, types
sys.modules["rota"] = package = types.ModuleType("rota")
package.__path__ = [{path!r}]
"""


def import_report(module: str, before: str = "") -> dict[str, Any]:
    """Return the modules in a new interpreter after the import, and the seconds the import took."""
    done = subprocess.run(
        [sys.executable, "-c", before + REPORT.format(module=module)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@cache
def rota_modules() -> set[str]:
    return set(import_report("rota")["modules"])


@pytest.mark.parametrize("name", [*HEAVY, *EDGES, "asyncio", "rota.model.timetable"])
def test_import_rota_does_not_load_listed_module(name: str) -> None:
    assert not {each for each in rota_modules() if each == name or each.startswith(f"{name}.")}


def test_import_rota_adds_under_80_modules_to_its_dependencies() -> None:
    ground = set(
        import_report("asyncio, msgspec, dataclasses, logging, inspect, importlib.resources")[
            "modules"
        ]
    )

    assert len(rota_modules() - ground) < 80


def test_import_rota_takes_under_three_times_its_dependencies() -> None:
    """The limit is a generous ratio of medians, measured in turns, because this machine may be busy."""
    ours, ground = [], []
    for _ in range(5):
        ours.append(import_report("rota")["took"])
        ground.append(import_report("asyncio, msgspec")["took"])

    assert sorted(ours)[2] < 3 * sorted(ground)[2]


def test_import_pytest_plugin_does_not_load_heavy_modules() -> None:
    """pytest loads the plugin wherever Rota is installed, also for tests that do not use Rota."""
    before = ALONE.format(path=str(Path(rota.__file__).parent)) + "import pytest, pytest_asyncio\n"

    brought = set(import_report("rota.testing.plugin", before)["modules"])

    for name in (*HEAVY, "rota.app", "rota.localpg", "rota.testing.server", "rota.store.database"):
        assert name not in brought, name
