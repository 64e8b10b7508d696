"""Folders that tests read files from and start programs in."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
PROGRAMS = SUPPORT / "programs"
"""Programs that tests start as processes."""

TESTS = SUPPORT.parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
DEPLOY = ROOT / "deploy"
