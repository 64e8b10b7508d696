"""The site builds without warnings, its links resolve, and it loads nothing from other hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.doc_pages import readme_pages
from support.places import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site from a copy: the working tree stays unchanged, and no file of an earlier build
    remains.
    """
    home = tmp_path_factory.mktemp("docs")
    shutil.copy(ROOT / "mkdocs.yml", home)
    shutil.copytree(ROOT / "docs", home / "docs")
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "No issues found" in built.stdout + built.stderr
    return (home / "site").resolve()


TAG = re.compile(r"<(\w+)\s([^>]*)>")
SAID = re.compile(r"""\b(id|href|src)=(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")


@dataclass
class PageLinks:
    """Links of a page, and its anchors."""

    ids: set[str] = field(default_factory=set)
    links: set[tuple[str, str]] = field(default_factory=set)


@cache
def read_links(page: Path) -> PageLinks:
    found = PageLinks()
    for tag, inside in TAG.findall(page.read_text("utf-8")):
        for word, *ways in SAID.findall(inside):
            value = unescape("".join(ways))
            if word == "id":
                found.ids.add(value)
            elif value:
                found.links.add((tag, value))
    return found


def test_site_links_resolve(site: Path) -> None:
    broken = []
    seen = 0
    for page in site.rglob("*.html"):
        for _, link in read_links(page).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            inside = target.is_relative_to(site) and target.is_file()
            if not inside or (parts.fragment and parts.fragment not in read_links(target).ids):
                broken.append(f"{page.relative_to(site).parent}: {link}")
            seen += 1
    assert broken == []
    assert seen > 3000


def test_site_loads_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        elsewhere = [
            link for tag, link in read_links(page).links if tag != "a" and urlsplit(link).netloc
        ]
        assert elsewhere == [], page.relative_to(site)


def test_readme_links_resolve() -> None:
    for path in (*readme_pages(), ROOT / "CONTRIBUTING.md", ROOT / "deploy" / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path}: {target}"
