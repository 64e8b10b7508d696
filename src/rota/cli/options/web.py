"""What commands that serve HTTP have in common: what they need, and who is let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from rota.cli.exit_codes import USAGE_ERROR, CommandError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from rota import Rota
    from rota.web.site import Auth

Command = TypeVar("Command", bound=Callable[..., Any])


@contextmanager
def require_web(feature: str) -> Iterator[None]:
    """Where what serves HTTP is imported: a part of `rota[web]` that is not installed is told in a line."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "rota":
            raise
        raise CommandError(
            f"{feature} needs {error.name}, which is not installed: pip install 'rota[web]'",
            USAGE_ERROR,
        ) from None


def health_site(app: Rota, auth: Auth, host: str) -> ASGIApp:
    """Return what a health port on `host` serves. The key of local access is printed."""
    from rota.web.site import site
    from rota.web.tokens_auth import LocalAccess

    local = LocalAccess() if auth == "local" else None
    served = site(app, auth=local or auth, bind=host, parts=("health",))
    if local is not None:
        click.echo(f"the health port accepts Authorization: Bearer {local.key}", err=True)
    return served


def auth_option(command: Command) -> Command:
    """`--auth tokens|local`, as `auth`; `rota.web.site.check_bind` says what goes with which address."""
    return click.option(
        "--auth",
        type=click.Choice(["tokens", "local"]),
        default="tokens",
        show_default=True,
        help="Access control: require a token, or the key in the link that is printed, on this machine.",
    )(command)
