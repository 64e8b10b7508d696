"""Import: the wall time that `import rota` adds to a bare interpreter. Both are started alternately."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.findings import Bar, Findings
from benchmarks.stage import Stage

BAR = Bar("import rota", 150.0, 80.0, more=False, unit="ms")
TIMEOUT_SECONDS = 30


def run(stage: Stage) -> Findings:
    findings = Findings("Import")
    _start("import rota")  # writes the bytecode and fills the page cache
    bare, added = [], []
    for _ in range(stage.sizes.imports):
        bare.append(_start("pass"))
        added.append(_start("import rota") - bare[-1])
    findings.add("bare interpreter", "python", "ms", bare)
    findings.add("import rota, added time", stage.rota.name, "ms", added)
    findings.judge(BAR, added)
    stage.say(f"import: {findings.verdicts[0].median:.0f} ms")
    return findings


def _start(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIMEOUT_SECONDS)
    return 1000 * (time.perf_counter() - began)
