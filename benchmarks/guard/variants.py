"""Variants to compare: two trees, each exported with its sources and its benchmark programs.

A variant runs its own `benchmarks/children/run_rota.py`, so the two may have different APIs. They must
share the protocol of `children/serve.py`. Both use the dependencies of this environment.
"""

from __future__ import annotations

import compileall
import io
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.places import BENCH, ROOT
from benchmarks.process import Child

PARTS = ("src", "benchmarks/children", "pyproject.toml")


class UnknownCommit(RuntimeError):
    pass


@dataclass(frozen=True)
class Variant:
    name: str
    commit: str
    root: Path

    def child(self, dsn: str) -> Child:
        program = self.root / "benchmarks" / "children" / "run_rota.py"
        environment = {"BENCH_DSN": dsn, "PYTHONPATH": str(self.root / "src")}
        return Child(self.name, (sys.executable, str(program)), environment)


@contextmanager
def exported(base: str) -> Iterator[tuple[Variant, Variant]]:
    """Export the base commit and this working tree; remove both at the end."""
    commit = _commit(base)
    BENCH.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="guard-", dir=BENCH) as directory:
        variants = (
            _export("base", commit, commit, Path(directory, "base")),
            _export("head", _described(), _working_tree(), Path(directory, "head")),
        )
        yield variants


def _export(name: str, commit: str, tree: str, root: Path) -> Variant:
    archive = _git("archive", "--format=tar", tree, *PARTS)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(root, filter="data")
    _describe_distribution(root)
    # Otherwise the first run would compile its modules inside a measurement.
    compileall.compile_dir(root, quiet=1)
    return Variant(name, commit[:12], root)


def _describe_distribution(root: Path) -> None:
    """Write the metadata of an installed distribution: the trees may have different names for theirs."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"], project["version"]
    place = root / "src" / f"{name}-{version}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _commit(name: str) -> str:
    try:
        return _git("rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError:
        raise UnknownCommit(f"BASE={name} is not a commit") from None


def _described() -> str:
    return _git("describe", "--always", "--dirty=+", "--exclude=*").decode().strip()


def _working_tree() -> str:
    """Return a tree object of the files as they are now, committed or not."""
    with TemporaryDirectory() as directory:
        index = os.path.join(directory, "index")
        _git("read-tree", "HEAD", index=index)
        _git("add", "--all", *PARTS, index=index)
        return _git("write-tree", index=index).decode().strip()


def _git(*words: str, index: str | None = None) -> bytes:
    environment = {**os.environ, **({"GIT_INDEX_FILE": index} if index else {})}
    done = subprocess.run(
        ["git", *words], cwd=ROOT, env=environment, capture_output=True, check=True
    )
    return done.stdout
