"""Options of commands that serve HTTP, their listening sockets, and the extra that they need."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from rota.cli.exit_codes import FAILED, USAGE_ERROR, CommandError

if TYPE_CHECKING:
    import socket

    from rota import Rota
    from rota.web.site import Auth

Command = TypeVar("Command", bound=Callable[..., Any])

log = logging.getLogger("rota")

LOOPBACK = "127.0.0.1"
DASHBOARD_PORT = 8080


def auth_option(command: Command) -> Command:
    """Add `--auth tokens|local`, as `auth`. `rota.web.site.check_bind` restricts the addresses for each."""
    return click.option(
        "--auth",
        type=click.Choice(["tokens", "local"]),
        default="tokens",
        show_default=True,
        help="Access control: require a token, or the key in the link that is printed, on this machine.",
    )(command)


def host_option(command: Command) -> Command:
    return click.option(
        "--host", default=LOOPBACK, metavar="HOST", show_default=True, help="Address to listen on."
    )(command)


def port_option(
    default: int | None, help: str = "Port to listen on; 0 selects a free one.", *, minimum: int = 0
) -> Callable[[Command], Command]:
    return click.option(
        "-p",
        "--port",
        type=click.IntRange(minimum, 65535),
        default=default,
        metavar="N",
        show_default=default is not None,
        help=help,
    )


def health_options(help: str) -> Callable[[Command], Command]:
    """Add `--health-port` with this help and `--health-host`, for `HealthPort.open`."""

    def add(command: Command) -> Command:
        host = click.option(
            "--health-host",
            default=LOOPBACK,
            metavar="HOST",
            show_default=True,
            help="Address of the health port.",
        )
        port = click.option("--health-port", type=click.IntRange(0, 65535), metavar="N", help=help)
        return port(host(command))

    return add


def listen(host: str, *ports: int, remedy: str) -> socket.socket:
    """Return a listening socket at the first of these ports that is free."""
    from rota.web.listen import bind

    for port in ports:
        try:
            return bind(host, port)
        except OSError as error:
            failure = error
    raise CommandError(
        f"cannot listen at {host} port {ports[0]}: {failure.strerror or failure}; choose another with "
        f"{remedy}",
        FAILED,
    )


@dataclass(frozen=True, slots=True)
class HealthPort:
    """Health, metrics and autoscale endpoints on their own port."""

    bound: socket.socket
    host: str
    auth: Auth

    @classmethod
    def open(cls, host: str, port: int | None, auth: Auth) -> HealthPort | None:
        """Listen at the port, if one is given."""
        if port is None:
            return None
        require_web("--health-port")
        return cls(listen(host, port, remedy="--health-host or --health-port"), host, auth)


@asynccontextmanager
async def serve_health(app: Rota, health: HealthPort | None) -> AsyncIterator[None]:
    """Serve health from before the worker starts until it has ended, so that probes observe both."""
    if health is None:
        yield
        return
    from rota.web.listen import base_url
    from rota.web.serve import serving
    from rota.web.site import site
    from rota.web.tokens_auth import LocalAccess

    local = LocalAccess() if health.auth == "local" else None
    served = site(app, auth=local or health.auth, bind=health.host, parts=("health",))
    if local is not None:
        click.echo(f"the health port accepts Authorization: Bearer {local.key}", err=True)
    async with serving(served, health.bound):
        log.info("health at %s", base_url(health.bound))
        yield


def has_dashboard() -> bool:
    """True if the packages of the dashboard are installed."""
    return all(find_spec(name) for name in ("starlette", "uvicorn", "jinja2"))


@contextmanager
def require_extra(feature: str, extra: str) -> Iterator[None]:
    """Report a missing part of an extra in one line, for imports inside the block."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "rota":
            raise
        raise CommandError(
            f"{feature} needs {error.name}, which is not installed: pip install 'pgrota[{extra}]'",
            USAGE_ERROR,
        ) from None


def require_web(feature: str) -> None:
    with require_extra(feature, "web"):
        import_module("rota.web.serve")
