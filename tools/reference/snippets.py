"""Code blocks on the pages that are included from tested files.

A page names the file and its section in the line above the block:

    <!-- from examples/tutorial/greet.py:all -->

This module keeps the block identical to the file. The page contains the code itself, so that it is also
readable in the repository, without the site.
"""

from __future__ import annotations

import re
from pathlib import Path

TAKEN = re.compile(
    r"^<!-- from (?P<of>[^\n]+) -->\n\n?```(?P<head>[^\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def refreshed(page: str, root: Path) -> str:
    """Return the page with the current code of the files."""
    return TAKEN.sub(lambda found: _block(found, root), page)


def sources(page: str) -> list[str]:
    """Return the files that a page takes code from."""
    return [each.split(":")[0] for found in TAKEN.finditer(page) for each in _each(found["of"])]


def _block(found: re.Match[str], root: Path) -> str:
    code = "\n\n\n".join(_section(root, each) for each in _each(found["of"]))
    return f"<!-- from {found['of']} -->\n```{found['head']}\n{code}\n```"


def _each(of: str) -> list[str]:
    return [each.strip() for each in of.split(",")]


def _section(root: Path, of: str) -> str:
    path, _, section = of.partition(":")
    text = (root / path).read_text("utf-8")
    marked = rf"^ *# \[{section}\]\n(.*?)(?=^ *# \[/{section}\]$)"
    found = re.findall(marked, text, re.MULTILINE | re.DOTALL)
    if len(found) != 1:
        raise SystemExit(
            f"{path} has no section {section!r}; mark it with `# [{section}]` and `# [/{section}]`"
        )
    return str(found[0]).strip("\n")
