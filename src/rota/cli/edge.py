"""What commands that serve HTTP have in common: who is let in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

Command = TypeVar("Command", bound=Callable[..., Any])


def auth_option(command: Command) -> Command:
    """`--auth tokens|none`, as `auth`; `rota.web.site.check_bind` says what goes with which address."""
    return click.option(
        "--auth",
        type=click.Choice(["tokens", "none"]),
        default="tokens",
        show_default=True,
        help="Who is let in: whoever has a token, or whoever is on this machine.",
    )(command)
