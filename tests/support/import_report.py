"""Modules that an import loads in a new interpreter, and its duration."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

REPORT = """
import json, sys, time
began = time.perf_counter()
import {module}
took = time.perf_counter() - began
print(json.dumps({{"modules": sorted(sys.modules), "took": took}}))
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
