"""One database for each project on the embedded server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rota.cli.pg import pg
from rota.localpg import LocalPostgres, default_directory
from rota.localpg.projects import database_of, project_directory
from support.app_processes import fetch_value

NAME = "select current_database()"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(pg, list(map(str, words)))


@pytest.fixture
def home(temporary_home: Path, data_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """User data directory with a server, and no directory that the user has chosen."""
    monkeypatch.delenv("ROTA_LOCAL_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(temporary_home))
    return temporary_home


def make_project(home: Path, name: str) -> Path:
    project = home / name
    (project / "deep" / "er").mkdir(parents=True)
    (project / "pyproject.toml").touch()
    return project


def test_project_is_nearest_directory_with_project_file(tmp_path: Path) -> None:
    project = make_project(tmp_path, "shop")
    assert project_directory(project) == project
    assert project_directory(project / "deep" / "er") == project
    (project / "deep" / "manage.py").touch()
    assert project_directory(project / "deep" / "er") == project / "deep"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("shop", "shop"), ("My Shop!", "my_shop"), ("店", "project"), ("x" * 99, "x" * 40)],
)
def test_project_database_is_named_after_directory(name: str, expected: str) -> None:
    first, second = (database_of(Path(base) / name) for base in ("/a", "/b"))
    assert first.name.rsplit("_", 1)[0] == second.name.rsplit("_", 1)[0] == expected
    assert first != second
    assert len(first.name.encode()) < 64


def test_projects_have_databases_of_their_own_on_one_server(
    home: Path, data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default_directory().parent.mkdir(parents=True, exist_ok=True)
    data_directory.rename(default_directory())
    shop, blog = (make_project(home, name) for name in ("shop", "blog"))
    monkeypatch.chdir(shop / "deep")
    with LocalPostgres(profile="test") as first:
        monkeypatch.chdir(blog)
        with LocalPostgres(profile="test") as second:
            assert first.status().pid == second.status().pid
            assert fetch_value(first.dsn, NAME) == database_of(shop).name
            assert fetch_value(second.dsn, NAME) == database_of(blog).name
            rows = json.loads(run("list", "--json").output)
            # Other tests may have left databases without a project in this data directory.
            assert {each["database"]: each["directory"] for each in rows if each["directory"]} == {
                database_of(shop).name: str(shop),
                database_of(blog).name: str(blog),
            }
            assert f"* {database_of(blog).name}" in " ".join(run("list").output.split())

            monkeypatch.chdir(make_project(home, "new"))
            assert "new" not in run("list").output

            kept = run("drop", database_of(shop).name)
            assert (kept.exit_code, "--yes" in kept.output) == (1, True)
            missing = run("drop", "nosuch")
            assert (missing.exit_code, "rota pg list" in missing.output) == (1, True)
            assert run("drop", database_of(shop).name, "--yes").exit_code == 0
            assert database_of(shop).name not in run("list").output
    default_directory().rename(data_directory)


def test_chosen_directory_has_one_database_for_all_projects(
    home: Path, data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_project(home, "shop"))
    with LocalPostgres(data_directory, profile="test") as server:
        assert fetch_value(server.dsn, NAME) == "rota"
        assert run("drop", "rota", "--yes", "--directory", data_directory).exit_code == 0
    monkeypatch.setenv("ROTA_LOCAL_DIR", str(home))
    assert LocalPostgres().project.name == "rota"
