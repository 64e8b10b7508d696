"""The guide to durable functions and its example: both behave as the guide describes."""

from __future__ import annotations

import re

from support.places import ROOT

PAGE = (ROOT / "docs" / "guides" / "durable.md").read_text("utf-8")


def test_durable_guide_links_have_existing_targets() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / "guides" / target).exists(), target
