"""Options of long-running commands for the level and format of log lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rich_click as click

from rota.logs import FORMATS, LEVELS


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --log-level and --log-format, for `rota.logs.to_stderr`."""
    log_format = click.option(
        "--log-format",
        type=click.Choice(FORMATS, case_sensitive=False),
        default="text",
        envvar="ROTA_LOG_FORMAT",
        metavar="FORMAT",
        show_default=True,
        help="text, or json: an object a line, with the job it was written for.",
    )
    log_level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        metavar="LEVEL",
        show_default=True,
        help="debug, info, warning or error, on stderr.",
    )
    return log_level(log_format(command))
