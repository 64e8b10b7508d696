"""`rota --help`, `--version`, and the modules that commands load."""

from __future__ import annotations

import subprocess
import sys

import pytest
import rich_click as click

from rota.cli.exit_codes import EXIT_CODE_MEANINGS
from rota.cli.main import COMMANDS, cli
from support.cli_fixtures import Rota
from support.terminal import Terminal


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


def test_help_lists_every_command_and_every_exit_code(rota: Rota) -> None:
    done = rota("--help")

    assert done.code == 0
    for name in COMMANDS:
        assert f"  {name} " in done.out
    for code, meaning in EXIT_CODE_MEANINGS.items():
        assert f"{code}  {meaning}" in done.out


@pytest.mark.parametrize("path", commands(cli), ids=" ".join)
def test_every_command_and_option_has_help(path: tuple[str, ...]) -> None:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found

    assert command.help
    assert all(
        each.help for each in command.params if isinstance(each, click.Option) and not each.hidden
    )


def test_command_help_imports_only_its_own_module() -> None:
    program = (
        "import sys; from rota.cli.main import run; run(['queues', '--help']); "
        "sys.exit([each for each in ('worker', 'show', 'pg') if f'rota.cli.{each}' in sys.modules] or 0)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_version_option_prints_the_package_version(rota: Rota) -> None:
    from importlib.metadata import version

    assert rota("--version").out == f"rota {version('pgrota')}\n"


def test_help_imports_neither_driver_nor_event_loop() -> None:
    program = (
        "import sys; from rota.cli.main import run; run(['--help']); "
        "sys.exit([each for each in ('psycopg', 'uvloop') if each in sys.modules] or 0)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_python_m_rota_runs_the_command_line() -> None:
    assert Terminal(None).run("--version").out.startswith("rota ")


def test_help_to_closed_pipe_prints_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "rota"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout
        assert program.stderr
        program.stdout.close()

        assert program.stderr.read() == b""


def test_rota_without_command_prints_help(rota: Rota) -> None:
    done = rota()

    assert done.code == 0
    assert "Exit codes:" in done.out
