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
        help="Log format: text, or json for one JSON object per line with the fields of the job.",
    )
    log_level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        metavar="LEVEL",
        show_default=True,
        help="Lowest level that is logged to stderr: debug, info, warning or error.",
    )
    return log_level(log_format(command))
