"""Prepares a release: `make release VERSION=1.2.0`.

    1. checks     the version is newer than all tags, the tree is clean, the changelog has entries,
                  `make check test` passes
    2. changelog  the entries of "Unreleased" move below the new version and today's date
    3. build      source archive and wheel in dist/; the wheel must contain every file of the package
    4. git        one commit, "release: 1.2.0", and the tag v1.2.0

Nothing leaves the machine: a maintainer pushes the tag and uploads dist/. If a step fails, the changed
files are restored.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
UNRELEASED = "## Unreleased\n"


class ReleaseError(Exception):
    """Reason why there is no release, with the remedy."""


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def parse(version: str) -> tuple[int, ...]:
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"VERSION={version} is not of the form 1.2.3")
    return tuple(map(int, version.split(".")))


def check(root: Path, version: str) -> None:
    """Refuse a version that is not newer, and a tree with changes that are not committed."""
    number = parse(version)
    if changed := git(root, "status", "--porcelain"):
        raise ReleaseError(f"commit or remove these changes first:\n{changed}")
    released = [tag.removeprefix("v") for tag in git(root, "tag", "--list", "v*").split()]
    for other in filter(VERSION.fullmatch, released):
        if parse(other) >= number:
            raise ReleaseError(f"VERSION={version} is not newer than the released {other}")


def cut_changelog(text: str, version: str, day: date) -> str:
    """Return the changelog with the entries of "Unreleased" below the new version."""
    head, found, rest = text.partition(UNRELEASED)
    if not found:
        raise ReleaseError(f"CHANGELOG.md has no line {UNRELEASED.strip()!r}")
    entries = rest.partition("\n## ")[0]
    if not entries.strip():
        raise ReleaseError(
            "CHANGELOG.md has no entries below 'Unreleased': describe the changes first"
        )
    return f"{head}{UNRELEASED}\n## {version} – {day.isoformat()}\n{rest}"


def set_version(text: str, version: str) -> str:
    """Return pyproject.toml with the new version."""
    changed, count = re.subn(r'(?m)^version = ".*"$', f'version = "{version}"', text)
    if count != 1:
        raise ReleaseError(f"pyproject.toml has {count} lines 'version = …' instead of one")
    return changed


def build(root: Path) -> list[Path]:
    """Build both archives; check that the wheel contains every tracked file of the package."""
    before = set((root / "dist").glob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"the build failed: {done.stderr.strip()}")
    built = sorted(set((root / "dist").glob("*")) - before)
    [wheel] = [path for path in built if path.suffix == ".whl"]
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    tracked = git(root, "ls-files", "src/rota").splitlines()
    if missing := [name for name in tracked if name.removeprefix("src/") not in packed]:
        raise ReleaseError(f"{wheel.name} lacks {len(missing)} files, for example {missing[0]}")
    return built


def release(root: Path, version: str, day: date, tests: list[str]) -> list[Path]:
    """Make the release in `root`; return the files to upload. The command `tests` has to pass before."""
    check(root, version)
    changelog, project = root / "CHANGELOG.md", root / "pyproject.toml"
    new_changelog = cut_changelog(changelog.read_text("utf-8"), version, day)
    new_project = set_version(project.read_text("utf-8"), version)
    if subprocess.run(tests, cwd=root, check=False).returncode:
        raise ReleaseError(f"`{' '.join(tests)}` failed; its output is above")
    try:
        changelog.write_text(new_changelog, "utf-8")
        project.write_text(new_project, "utf-8")
        built = build(root)
        git(
            root, "commit", "--quiet", "-m", f"release: {version}", "CHANGELOG.md", "pyproject.toml"
        )
    except BaseException:
        git(root, "checkout", "--quiet", "HEAD", "--", "CHANGELOG.md", "pyproject.toml")
        raise
    git(root, "tag", "--annotate", f"v{version}", "-m", f"Rota {version}")
    return built


def main() -> int:
    parser = argparse.ArgumentParser(description="Prepare a release of Rota.")
    parser.add_argument("version", help="for example 1.2.0")
    version = parser.parse_args().version
    try:
        built = release(ROOT, version, datetime.now(UTC).date(), ["make", "check", "test"])
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    print(f"Rota {version} is committed and tagged as v{version}. To publish it:")
    print("  git push --follow-tags")
    print(f"  upload {' '.join(path.relative_to(ROOT).as_posix() for path in built)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
