"""What commands that serve HTTP have in common: what they need, and who is let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import rich_click as click

from rota.cli.endings import MISTAKE, Told

Command = TypeVar("Command", bound=Callable[..., Any])


@contextmanager
def web_needed(who: str) -> Iterator[None]:
    """Where what serves HTTP is imported: a part of `rota[web]` that is not installed is told in a line."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "rota":
            raise
        raise Told(
            f"{who} needs {error.name}, which is not installed: pip install 'rota[web]'", MISTAKE
        ) from None


def auth_option(command: Command) -> Command:
    """`--auth tokens|none`, as `auth`; `rota.web.site.check_bind` says what goes with which address."""
    return click.option(
        "--auth",
        type=click.Choice(["tokens", "none"]),
        default="tokens",
        show_default=True,
        help="Who is let in: whoever has a token, or whoever is on this machine.",
    )(command)
