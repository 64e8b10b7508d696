"""Checks of the tree that no other tool makes; `make check` runs them.

Nothing that ships names a machine it was written on, or the registry it was installed from.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Directories of users; directories that every system has are fine.
MACHINE = re.compile(r"(?<![\w.])/(?:home|Users|root|work|mnt|media)/\w[\w.-]*")
REGISTRY = re.compile(
    r"(?:index-url|find-links|trusted-host)\b|https?://[^\s\"')]*(?:pypi|simple/|artifactory|nexus|devpi)"
    r"|registry\.npmjs|\.whl\b.*https?://",
    re.IGNORECASE,
)
ADDRESS = re.compile(r"https?://|^--?\w*(?:index|find-links|trusted)|@ (?:file|git)", re.IGNORECASE)


def files() -> list[Path]:
    """Return all files that git tracks or would track; ignored files are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = (name for name in listed.stdout.decode().split("\0") if name)
    return sorted(path for name in names if (path := ROOT / name).is_file())


def faults() -> Iterator[str]:
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        if name.startswith("src/"):
            yield from _matches(name, lines, MACHINE, "names a place on somebody's machine")
            yield from _matches(name, lines, REGISTRY, "names a registry")
        if name == "requirements-dev.txt":
            yield from _matches(name, lines, ADDRESS, "names an address")


def _matches(name: str, lines: list[str], pattern: re.Pattern[str], fault: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if found := pattern.search(line):
            yield f"{name}:{number}: {fault}: {found[0]}"


def main() -> int:
    found = list(faults())
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
