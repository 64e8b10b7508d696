"""Directories of the benchmark. Everything it installs is in the git-ignored .bench/."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
CHILDREN = HERE / "children"
RESULTS = HERE / "results"
PEERS = HERE / "peers.txt"
BENCH = HERE.parent / ".bench"
PYTHON = BENCH / "python"
NODE = BENCH / "node"
