"""Reference of the commands: arguments and options as click declares them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click

from rota.cli.exit_codes import EXIT_CODE_MEANINGS
from rota.cli.main import PANELS, cli

from .prose import made, said, table

WORDS = """\
All commands, with the texts of `rota COMMAND --help`. [The guide](../guides/cli.md) shows how to use them
together.

Every command takes `--dsn` and `--schema`, and commands that need your code take `-a MODULE:APP`. These
options can be given before or after the command's name."""

COMMON = {"dsn", "schema", "help", "version"}


def page() -> str:
    context = click.Context(cli, info_name="rota")
    parts = []
    for title, names in PANELS.items():
        parts.append(f"## {title}")
        for name in names:
            command = cli.get_command(context, name)
            assert command is not None
            parts += _command(command, f"rota {name}", context)
    codes = table(
        ["code", "meaning"], [[str(code), text] for code, text in EXIT_CODE_MEANINGS.items()]
    )
    return made("Commands", WORDS, [*parts, "## Exit codes", codes])


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and its subcommands, each with its full path."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(below, f"{path} {name}")


def _command(command: click.Command, path: str, parent: click.Context) -> Iterator[str]:
    for name, each in commands(command, path):
        depth = "###" if name == path else "####"
        yield f"{depth} {name}"
        pieces = " ".join(
            each.collect_usage_pieces(click.Context(each, info_name=name, parent=None))
        )
        yield f"```text\n{name} {pieces}\n```"
        if each.help:
            yield said(each.help.replace("\b\n", ""))
        rows = [
            _row(each)
            for each in each.params
            if isinstance(each, click.Option) and not _is_common(each)
        ]
        if any(default for _, _, default in rows):
            yield table(["option", "", "default"], rows)
        elif rows:
            yield table(["option", ""], [row[:2] for row in rows])
        if each.epilog:
            yield said(each.epilog)


def _is_common(parameter: click.Parameter) -> bool:
    return parameter.name in COMMON or getattr(parameter, "hidden", False)


def _row(option: click.Option) -> list[str]:
    names = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
    kind = "" if option.is_flag or option.count else f" {_metavar(option)}"
    help = option.help or ""
    if option.envvar:
        variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar
        help += f" ({', '.join(f'`{each}`' for each in variables)})"
    return [names + kind, help, _default(option)]


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return re.sub(r"\W*(\w.*\w|\w)\W*", r"\1", option.metavar or option.type.name).upper()


def _default(option: click.Option) -> str:
    value: Any = option.default
    if isinstance(option.show_default, str):
        return option.show_default
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f"`{value}`" if plain and value != "" else ""
