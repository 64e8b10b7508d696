"""Options of commands that serve HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from rota import Rota
    from rota.web.site import Auth

Command = TypeVar("Command", bound=Callable[..., Any])


def health_site(app: Rota, auth: Auth, host: str) -> ASGIApp:
    """Return the site of a health port on `host`. Print the key of local access."""
    from rota.web.site import site
    from rota.web.tokens_auth import LocalAccess

    local = LocalAccess() if auth == "local" else None
    served = site(app, auth=local or auth, bind=host, parts=("health",))
    if local is not None:
        click.echo(f"the health port accepts Authorization: Bearer {local.key}", err=True)
    return served


def auth_option(command: Command) -> Command:
    """Add `--auth tokens|local`, as `auth`. `rota.web.site.check_bind` restricts the addresses for each."""
    return click.option(
        "--auth",
        type=click.Choice(["tokens", "local"]),
        default="tokens",
        show_default=True,
        help="Access control: require a token, or the key in the link that is printed, on this machine.",
    )(command)
