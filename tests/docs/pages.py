"""Pages of the documentation, and the programs they take their code from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def name(page: Path) -> str:
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


def around() -> list[Path]:
    """Return the pages outside docs/ that users read first."""
    return [ROOT / "README.md", *sorted((ROOT / "examples").rglob("README.md"))]


def written() -> list[Path]:
    """Return the pages that are not generated."""
    return [page for page in pages() if "Made by `python -m tools.reference`" not in text(page)]


def text(page: Path) -> str:
    return page.read_text("utf-8")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Yield the code blocks of a page in one of these languages."""
    for language, code in BLOCK.findall(text(page)):
        if language in languages:
            yield code


def program(path: str) -> ModuleType:
    """Import a file of `examples`, which is not a package."""
    spec = spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
