"""File watcher of `rota dev`: reports every change to the project's Python files, and no other."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rota.cli import file_watcher
from rota.cli.file_watcher import FileWatcher, find_syntax_error


def test_file_watcher_changed_added_and_removed_files_are_reported_once(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    old, new, gone = tmp_path / "old.py", tmp_path / "inside" / "new.py", tmp_path / "gone.py"
    old.write_text("x = 1")
    gone.write_text("")
    seen = FileWatcher([tmp_path])
    assert seen.file_count == 2
    assert seen.poll_changes() == set()

    old.write_text("x = 12")
    new.write_text("")
    gone.unlink()

    assert seen.poll_changes() == {old, new, gone}
    assert seen.poll_changes() == set()


def test_file_watcher_same_size_file_is_detected_by_mtime(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("x = 1")
    seen = FileWatcher([tmp_path])

    file.write_text("x = 2")
    os.utime(file, ns=(1, 1))

    assert seen.poll_changes() == {file}


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        ".git/hook.py",
        ".venv/lib/a.py",
        "__pycache__/a.py",
        "env/lib/site-packages/a.py",
        "myenv/bin/a.py",
        "node_modules/a.py",
    ],
)
def test_file_watcher_files_outside_project_python_are_ignored(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if path.startswith("myenv"):
        (tmp_path / "myenv" / "pyvenv.cfg").touch()
    seen = FileWatcher([tmp_path])

    file.write_text("x = 1")

    assert seen.poll_changes() == set()


def test_file_watcher_nested_directory_is_watched_once(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()

    assert FileWatcher([tmp_path / "inside", tmp_path]).roots == [tmp_path]


async def test_file_watcher_changes_in_sequence_are_returned_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is written in every pause of the watcher, five times."""
    names = iter(["0.py", "1.py", "2.py", "3.py", "4.py"])

    async def write(seconds: float) -> None:
        if name := next(names, None):
            (tmp_path / name).touch()

    its_asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": write})
    monkeypatch.setattr(file_watcher, "asyncio", its_asyncio)

    assert len(await FileWatcher([tmp_path]).wait_for_changes()) == 5


def test_find_syntax_error_returns_pythons_message_for_broken_file(tmp_path: Path) -> None:
    good, bad, gone = tmp_path / "a.py", tmp_path / "b.py", tmp_path / "c.py"
    good.write_text("x = 1")
    bad.write_text("def broken(:\n    pass")

    assert find_syntax_error([good, gone]) is None
    told = find_syntax_error([good, bad])

    assert told is not None
    assert f'File "{bad}", line 1' in told
    assert told.endswith("SyntaxError: invalid syntax")
