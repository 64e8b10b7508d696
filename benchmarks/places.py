"""Directories of the benchmark. Everything it installs is in the git-ignored .bench/."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
CHILDREN = HERE / "children"
RESULTS = HERE / "RESULTS.md"
PEERS = HERE / "peers.txt"
ROOT = HERE.parent
BENCH = ROOT / ".bench"
PARTIAL_RESULTS = BENCH / "results"
PYTHON = BENCH / "python"
NODE = BENCH / "node"
