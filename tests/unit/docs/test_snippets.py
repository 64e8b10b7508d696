"""Code on the pages parses, the names it imports and calls exist, and the commands have valid options.

Many pages have tests of their own that run their code (`test_*_page.py`); these checks apply to all pages.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import click

from rota import Context, Flow, Rota, Run, ServiceContext
from rota.app.schedules import Schedules
from rota.app.task import Task
from rota.cli.main import COMMANDS, cli
from support.doc_pages import blocks, handwritten_pages, name, pages, readme_pages, text
from support.failures import assert_none, failures
from support.places import ROOT, TESTS

snippets = import_module("tools.reference").snippets

WRITTEN = [*handwritten_pages(), *readme_pages()]
OTHERS = ("from celery", "Celery(", "Scheduler", "scheduler.", "apply_async", "app.conf", "delay(")

# Types of the variable names that code on the pages uses.
KNOWN: dict[str, type] = {
    "app": Rota,
    "run": Run,
    "etl": Flow,
    "flow": Flow,
    "harness.app": Rota,
    "app.schedules": Schedules,
}


def test_page_python_code_parses() -> None:
    assert_none(
        f"{name(page)}: {code}"
        for page in WRITTEN
        for code in blocks(page, "python")
        if parsed(code) is None
    )


def test_page_imports_from_rota_exist() -> None:
    assert_none(failures(check_imports, WRITTEN, name))


def check_imports(page: Path) -> None:
    for tree in trees(page):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rota":
                module = import_module(node.module or "")
                for each in node.names:
                    assert hasattr(module, each.name), f"{node.module}.{each.name}"


def test_page_attributes_of_app_run_and_context_exist() -> None:
    assert_none(failures(check_attributes, WRITTEN, name))


def check_attributes(page: Path) -> None:
    for tree in trees(page):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                of = ast.unparse(node.value)
                kinds = (
                    [Context, ServiceContext] if of == "ctx" else [KNOWN[of]] if of in KNOWN else []
                )
                assert not kinds or any(node.attr in names(kind) for kind in kinds), ast.unparse(
                    node
                )


def test_page_options_of_calls_exist() -> None:
    assert_none(failures(check_options, WRITTEN, name))


def check_options(page: Path) -> None:
    takes: dict[str, Callable[..., object]] = {
        "app.task": Rota.task,
        "app.schedule": Rota.schedule,
        "app.lock": Rota.lock,
        "app.leader": Rota.leader,
        "app.service": Rota.service,
        "app.rate_limit": Rota.rate_limit,
        "app.semaphore": Rota.semaphore,
        "app.worker": Rota.worker,
        "app.fork": Rota.fork,
        "app.schedules.create": Schedules.create,
    }
    for tree in trees(page):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                known = takes.get(called) or (Task.options if called.endswith(".options") else None)
                if known is None or called in ("ctx.options", "app.lifespan.options"):
                    continue
                allowed = inspect.signature(known).parameters
                for each in node.keywords:
                    assert each.arg is None or each.arg in allowed, ast.unparse(node)


def test_page_commands_and_their_options_exist() -> None:
    assert_none(failures(check_commands, [*pages(), *readme_pages()], name))


def check_commands(page: Path) -> None:
    """Check every `rota COMMAND … --option` on a page."""
    said = re.sub(r"\\\n\s*", " ", text(page))
    shell = [
        line
        for code in blocks(page, "", "sh", "console", "bash", "text", "yaml")
        for line in code.splitlines()
    ]
    inline = re.findall(r"`(rota [a-z][^`]*)`", said)
    for line in (*inline, *shell):
        found = re.search(r"(?:^|\$ |- run: |exec |&& )\s*(rota [a-z][\w-]*(?: .*)?)$", line)
        if found and not re.match(r"rota \w+ \w+[.:]", line):
            check_command(found[1], name(page))


def check_command(line: str, where: str) -> None:
    words = re.split(r"\s+(?:#|\||&&|>|\()", line)[0].split()[1:]
    command: click.Command | None = (
        cli.get_command(click.Context(cli), words[0].split("|")[0])
        if words[0] in COMMANDS
        else None
    )
    if words[0] not in COMMANDS:
        assert "|" in words[0] or words[0].isupper() or words[0] == "COMMAND", f"{where}: {line}"
        return
    assert command is not None
    options = set(flags(command))
    if (
        isinstance(command, click.Group)
        and len(words) > 1
        and words[1].split("|")[0] in command.commands
    ):
        options |= set(flags(command.commands[words[1].split("|")[0]]))
    for word in words[1:]:
        flag = word.split("=")[0].strip("[].,:;…'\"")
        if re.fullmatch(r"--[a-z][a-z-]*", flag):
            assert flag in options | {"--dsn", "--schema", "--help", "--app"}, (
                f"{where}: {line}: {flag}"
            )


def flags(command: click.Command) -> Iterator[str]:
    for each in command.params:
        yield from (*each.opts, *each.secondary_opts)


def test_page_code_equals_its_source_file() -> None:
    stale = [name(page) for page in WRITTEN if snippets.refreshed(text(page), ROOT) != text(page)]

    assert_none(stale, "run `python -m tools.reference`")


def test_source_files_of_page_code_are_run_by_tests() -> None:
    tests = "".join(path.read_text("utf-8") for path in TESTS.glob("*/docs/test_*.py"))
    taken = {path for page in WRITTEN for path in snippets.sources(text(page))}
    assert len(taken) > 3
    assert [path for path in taken if Path(path).name not in tests] == []


def trees(page: Path) -> Iterator[ast.Module]:
    for code in blocks(page, "python"):
        if not any(word in code for word in OTHERS):
            tree = parsed(code)
            assert tree is not None, code
            yield tree


def parsed(code: str) -> ast.Module | None:
    code = textwrap.dedent(code)
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        tree = compile(code, "page", "exec", flags)
    except SyntaxError:
        return None
    assert isinstance(tree, ast.Module)
    return tree


@cache
def names(kind: type) -> frozenset[str]:
    """Return the attributes of a class, including those that its `__init__` sets."""
    ours = (each for each in kind.__mro__ if each.__module__.startswith("rota"))
    said = (re.findall(r"self\.(\w+)\b", inspect.getsource(each)) for each in ours)
    return frozenset(dir(kind)).union(*said)


def test_page_example_modules_have_a_main() -> None:
    named = {
        each for page in WRITTEN for each in re.findall(r"python -m (examples\.\w+)", text(page))
    }
    assert len(named) >= 3
    for module in named:
        assert (ROOT / module.replace(".", "/") / "__main__.py").exists(), module
