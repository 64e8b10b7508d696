"""The reference has an entry for every command, setting, event, table, name, operation and error."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import click

import rota
import rota.asgi
import rota.contrib.fastapi
import rota.errors
import rota.logs
import rota.testing
from rota.cli.main import COMMANDS, cli
from rota.engine.diagnosis.doctor import CHECKS
from rota.model import events
from rota.model.explanation import ReasonCode
from rota.model.settings import Settings
from rota.web.api import openapi
from support.doc_pages import handwritten_pages, name, text
from support.failures import assert_none
from support.places import DOCS, ROOT

REFERENCE = DOCS / "reference"

made = import_module("tools.reference").pages()


def read(page: str) -> str:
    return (REFERENCE / page).read_text("utf-8")


def headings(page: str, depth: str) -> list[str]:
    return re.findall(rf"^{depth} (.+)$", page, re.MULTILINE)


def test_reference_pages_equal_generated_pages() -> None:
    stale = (page for page in sorted(made) if read(page) != made[page])

    assert_none(stale, "run `python -m tools.reference`")


def test_reference_has_no_stale_pages() -> None:
    by_hand = {"settings.md", "metrics.md"}
    there = {path.relative_to(REFERENCE).as_posix() for path in REFERENCE.rglob("*.md")}
    assert there == {*made, *by_hand}


def test_reference_has_every_command_and_option() -> None:
    page = read("cli.md")
    context = click.Context(cli, info_name="rota")
    for word in COMMANDS:
        command = cli.get_command(context, word)
        assert command is not None
        for path, each in subcommands(command, f"rota {word}"):
            entry = re.search(
                rf"^###+ {re.escape(path)}\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE
            )
            assert entry, path
            for option in each.params:
                if isinstance(option, click.Option) and not option.hidden:
                    common = option.name in {"dsn", "schema", "help"}
                    assert common or f"`{option.opts[-1]}`" in entry[1], f"{path} {option.opts}"


def subcommands(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        for word, each in command.commands.items():
            found += subcommands(each, f"{path} {word}")
    return found


def test_cli_guide_has_every_command() -> None:
    guide = (DOCS / "guides" / "cli.md").read_text("utf-8")
    assert [word for word in COMMANDS if f"rota {word}" not in guide] == []


def test_reference_has_every_setting_with_its_default() -> None:
    page = read("settings.md")
    for each in fields(Settings):
        row = re.search(rf"^\| `ROTA_{each.name.upper()}` \|([^|]*)\|", page, re.MULTILINE)
        assert row, each.name
        assert row[1].strip().strip("`") == format_default(each.default), each.name


def format_default(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:.10g}" if isinstance(default, float) else str(default)


def test_reference_has_every_environment_variable_in_source() -> None:
    page = read("settings.md")
    sources = "".join(
        path.read_text("utf-8")
        for path in (ROOT / "src" / "rota").rglob("*.py")
        if "testing" not in path.parts
    )
    read_somewhere = set(re.findall(r"""["'](ROTA_[A-Z_]*[A-Z])["']""", sources))
    assert "ROTA_DATABASE_URL" in read_somewhere
    assert (
        sorted(each for each in read_somewhere if f"`{each}" not in page and f"{each}=" not in page)
        == []
    )


def test_reference_has_every_event() -> None:
    assert headings(read("events.md"), "##") == [
        name
        for name, each in vars(events).items()
        if inspect.isclass(each) and issubclass(each, events.Event) and each is not events.Event
    ]


def test_reference_has_every_table_view_column_and_function() -> None:
    page, golden = read("schema.md"), (ROOT / "src/rota/store/schema.sql").read_text("utf-8")
    for kind in ("table", "view"):
        for which, inside in re.findall(
            rf"^create {kind} rota\.(\w+) \(\n(.*?)^\)", golden, re.DOTALL | re.MULTILINE
        ):
            entry = re.search(
                rf"^### rota\.{which}\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE
            )
            assert entry, which
            assert entry[1].strip().splitlines()[0], f"{which} is not told of"
            for column in re.findall(r"^    (\"?\w+\"?) ", inside, re.MULTILINE):
                assert column == "constraint" or f"| `{column}` |" in entry[1], f"{which}.{column}"
    for function in set(re.findall(r"^create function rota\.(\w+)", golden, re.MULTILINE)):
        assert f"rota.{function}" in page, function


def test_reference_has_every_public_name() -> None:
    told = "".join(read(f"api/{path.name}") for path in (REFERENCE / "api").glob("*.md"))
    entries = {*headings(told, "##"), *re.findall(r"^\| `(\w+)` \| `rota", told, re.MULTILINE)}
    for package in (rota, rota.testing, rota.asgi, rota.contrib.fastapi, rota.logs):
        assert [each for each in package.__all__ if each not in entries] == [], package.__name__
    for method in (
        "task",
        "flow",
        "lock",
        "leader",
        "service",
        "once",
        "rate_limit",
        "worker",
        "fork",
    ):
        assert f"### Rota.{method}()" in told


def test_reference_api_entries_have_docstrings() -> None:
    for path in (REFERENCE / "api").glob("*.md"):
        for entry in re.split(r"^(?=###? )", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            title = entry.splitlines()[0]
            words = re.sub(r"```.*?```", "", entry.split("\n", 1)[1], flags=re.DOTALL).strip()
            assert words, f"{path.name}: {title} has no docstring"


def test_reference_has_every_http_operation() -> None:
    there = [f"{method.upper()} {path}" for path, of in openapi()["paths"].items() for method in of]
    assert set(there) <= set(headings(read("http.md"), "###"))


def test_reference_and_troubleshooting_have_every_error() -> None:
    kinds = [
        each.__name__
        for each in vars(rota.errors).values()
        if inspect.isclass(each) and each.__module__ == "rota.errors"
    ]
    page, trouble = read("api/errors.md"), (DOCS / "troubleshooting.md").read_text("utf-8")
    for kind in kinds:
        assert f"| `{kind}` |" in page, kind
        assert kind == "RotaError" or f"`{kind}`" in trouble, kind


def test_explain_guide_has_every_reason_and_doctor_check() -> None:
    page = (DOCS / "guides" / "explain.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w ]+)` \| \w", page, re.MULTILINE)
    assert rows == [*get_args(ReasonCode), *(check for check, _ in CHECKS)]


def test_navigation_lists_exactly_the_pages() -> None:
    listed = set(
        re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    )
    decisions = {name(page) for page in DOCS.glob("decisions/0*.md")}
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == there - decisions
    index = (DOCS / "decisions" / "index.md").read_text("utf-8")
    assert [each for each in decisions if f"({Path(each).name})" not in index] == []


def test_pages_name_only_known_variables() -> None:
    known = {f"ROTA_{each.name.upper()}" for each in fields(Settings)}
    known |= set(re.findall(r"ROTA_[A-Z_]*[A-Z]", read("settings.md")))
    for page in handwritten_pages():
        named = set(re.findall(r"\bROTA_[A-Z_]*[A-Z]", text(page)))
        named = {each.removesuffix("_FILE") for each in named}
        assert sorted(named - known - {"ROTA_TEST_DATABASE_URL"}) == [], name(page)
