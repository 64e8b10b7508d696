"""Tests that take long, or require tools that are expensive to install, run only in `make proofs`."""

from __future__ import annotations

import os

LONG = ["test_image_build.py", "test_promtool.py"]

collect_ignore = [] if os.environ.get("ROTA_TEST_LONG") == "1" else LONG
