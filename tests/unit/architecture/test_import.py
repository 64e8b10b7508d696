"""`import rota` is light: it loads no driver, no command line and no pages."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import rota
from support.failures import assert_none
from support.import_report import import_report

HEAVY = (
    *("psycopg", "psycopg_pool", "asyncpg", "sqlalchemy", "django", "pydantic", "click", "rich"),
    *("cronsim", "zoneinfo"),
)
EDGES = ("rota.cli", "rota.web", "rota.testing", "rota.localpg", "rota.engine.worker.worker")


# Replaces the package `rota` by an empty one, to load the plugin without the rest of the package.
ALONE = """
import sys, types
sys.modules["rota"] = package = types.ModuleType("rota")
package.__path__ = [{path!r}]
"""


@cache
def rota_modules() -> set[str]:
    return set(import_report("rota")["modules"])


def test_import_rota_does_not_load_listed_modules() -> None:
    listed = {*HEAVY, *EDGES, "asyncio", "rota.model.timetable"}

    assert_none(
        module
        for module in sorted(rota_modules())
        if any(module == name or module.startswith(f"{name}.") for name in listed)
    )


def test_import_rota_adds_under_80_modules_to_its_dependencies() -> None:
    ground = set(
        import_report("asyncio, msgspec, dataclasses, logging, inspect, importlib.resources")[
            "modules"
        ]
    )

    assert len(rota_modules() - ground) < 80


def test_import_pytest_plugin_does_not_load_heavy_modules() -> None:
    """pytest loads the plugin wherever Rota is installed, also for tests that do not use Rota."""
    before = ALONE.format(path=str(Path(rota.__file__).parent)) + "import pytest, pytest_asyncio\n"

    brought = set(import_report("rota.testing.plugin", before)["modules"])

    for name in (*HEAVY, "rota.app", "rota.localpg", "rota.testing.server", "rota.store.database"):
        assert name not in brought, name
