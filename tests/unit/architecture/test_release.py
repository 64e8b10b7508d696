"""`make release`: changelog, version, archives, commit and tag; nothing is changed if it is refused."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from datetime import date
from pathlib import Path

import pytest
from tools.release import ReleaseError, cut_changelog, git, release

DAY = date(2027, 1, 31)
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "pgrota"
version = "0.1.0.dev0"

[tool.hatch.build.targets.wheel]
packages = ["src/rota"]
"""
CHANGELOG = "# Changes\n\n## Unreleased\n\n- Jobs.\n"
PASS, FAIL = ["true"], ["false"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src/rota/store").mkdir(parents=True)
    (tmp_path / "src/rota/__init__.py").write_text("")
    (tmp_path / "src/rota/store/claim.sql").write_text("select 1\n")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / ".gitignore").write_text("dist/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "Maintainer")
    git(tmp_path, "config", "user.email", "maintainer@example.org")
    git(tmp_path, "config", "commit.gpgsign", "false")
    git(tmp_path, "config", "tag.gpgsign", "false")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def test_release_commits_tags_and_builds_archives(tree: Path) -> None:
    archive, wheel = sorted(release(tree, "1.2.0", DAY, PASS), key=lambda path: path.suffix)

    assert (tree / "CHANGELOG.md").read_text() == (
        "# Changes\n\n## Unreleased\n\n## 1.2.0 – 2027-01-31\n\n- Jobs.\n"
    )
    assert git(tree, "log", "-1", "--format=%s") == "release: 1.2.0"
    assert git(tree, "describe", "--exact-match") == "v1.2.0"
    assert git(tree, "status", "--porcelain") == ""
    with zipfile.ZipFile(wheel) as packed:
        assert {"rota/__init__.py", "rota/store/claim.sql"} <= set(packed.namelist())
    with tarfile.open(archive) as packed:
        assert "pgrota-1.2.0/pyproject.toml" in packed.getnames()


@pytest.mark.parametrize("version", ["1.2", "v1.2.0", "1.2.0rc1", "1.02.0"])
def test_release_version_of_another_form_is_refused(tree: Path, version: str) -> None:
    with pytest.raises(ReleaseError, match=rf"VERSION={version} is not of the form 1\.2\.3"):
        release(tree, version, DAY, PASS)


@pytest.mark.parametrize("version", ["1.2.0", "1.1.9"])
def test_release_version_not_newer_is_refused(tree: Path, version: str) -> None:
    git(tree, "tag", "v1.2.0")
    with pytest.raises(ReleaseError, match=r"is not newer than the released 1\.2\.0"):
        release(tree, version, DAY, PASS)


def test_release_with_uncommitted_changes_is_refused(tree: Path) -> None:
    (tree / "src/rota/__init__.py").write_text("x = 1\n")
    with pytest.raises(ReleaseError, match=r"commit or remove.*\n.*src/rota/__init__\.py"):
        release(tree, "1.2.0", DAY, PASS)


def test_release_with_failing_tests_leaves_tree_unchanged(tree: Path) -> None:
    before = git(tree, "rev-parse", "HEAD")
    with pytest.raises(ReleaseError, match="`false` failed"):
        release(tree, "1.2.0", DAY, FAIL)
    assert git(tree, "rev-parse", "HEAD") == before
    assert (git(tree, "tag"), git(tree, "status", "--short")) == ("", "")


def test_release_wheel_without_package_file_is_refused(tree: Path) -> None:
    project = tree / "pyproject.toml"
    project.write_text(f'{PROJECT}exclude = ["*.sql"]\n')
    git(tree, "commit", "--quiet", "--all", "-m", "without SQL")
    with pytest.raises(ReleaseError, match=r"lacks 1 files, for example src/rota/store/claim\.sql"):
        release(tree, "1.2.0", DAY, PASS)
    assert (git(tree, "tag"), git(tree, "status", "--short")) == ("", "")


def test_release_changelog_without_entries_is_refused() -> None:
    with pytest.raises(ReleaseError, match="no entries below 'Unreleased'"):
        cut_changelog(
            "# Changes\n\n## Unreleased\n\n## 1.0.0 – 2026-12-01\n\n- Jobs.\n", "1.1.0", DAY
        )


def test_release_changelog_without_unreleased_section_is_refused() -> None:
    with pytest.raises(ReleaseError, match="has no line '## Unreleased'"):
        cut_changelog("# Changes\n", "1.1.0", DAY)


def test_release_command_invalid_version_prints_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", "next"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "make release: VERSION=next is not of the form 1.2.3" in done.stderr
