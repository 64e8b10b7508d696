"""Installation of the peers into .bench/, once for each set of versions.

A peer that is not available here (no npm, no registry) is left out of the run with one line that gives the
reason; all others are measured.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.places import NODE, PEERS, PYTHON

INSTALL_TIMEOUT_SECONDS = 600
# graphile-worker 0.18 requires Node 22.18 or newer; npm installs it, independent of the machine's version.
NODE_VERSION = "22.23.3"
NPM_PACKAGES = ("graphile-worker@0.18.0", "pg@8.23.1")


class PeerMissing(RuntimeError):
    """A peer cannot be installed on this machine. The message is one line with the reason."""


def python_peers() -> Path:
    """Return the interpreter that has the Python peers."""
    interpreter = PYTHON / "bin" / "python"
    wanted = PEERS.read_text() + sys.version
    if _stamp(PYTHON) == wanted:
        return interpreter
    _run([sys.executable, "-m", "venv", "--clear", str(PYTHON)])
    quietly = ["-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    _run([str(interpreter), *quietly, "-r", str(PEERS)])
    _write_stamp(PYTHON, wanted)
    return interpreter


def node_peers() -> Path:
    """Return the `node` that runs graphile-worker; its packages are in .bench/node."""
    npm = shutil.which("npm")
    if not npm:
        raise PeerMissing("npm is not installed")
    package = f"node-{platform.system().lower()}-{_architecture()}"
    node = NODE / "node_modules" / package / "bin" / "node"
    wanted = " ".join((*NPM_PACKAGES, f"{package}@{NODE_VERSION}"))
    if _stamp(NODE) == wanted:
        return node
    shutil.rmtree(NODE, ignore_errors=True)
    NODE.mkdir(parents=True)
    # Without a package.json npm would search the parent directories for one.
    (NODE / "package.json").write_text('{"private": true}\n')
    quietly = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    _run([npm, "install", "--prefix", str(NODE), *quietly, *wanted.split()])
    _write_stamp(NODE, wanted)
    return node


def _architecture() -> str:
    return {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _stamp(directory: Path) -> str | None:
    stamp = directory / ".stamp"
    return stamp.read_text() if stamp.exists() else None


def _write_stamp(directory: Path, wanted: str) -> None:
    (directory / ".stamp").write_text(wanted)


def _run(command: Sequence[str]) -> None:
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"the installation took more than {INSTALL_TIMEOUT_SECONDS} s") from None
    if ended.returncode:
        output = (ended.stderr or ended.stdout).strip().splitlines() or ["no reason given"]
        raise PeerMissing(f"it cannot be installed ({output[-1][:200]})")
