"""JSON from the command line or from standard input."""

from __future__ import annotations

import json
import sys
from typing import Any

from rota.cli.exit_codes import USAGE_ERROR, CommandError


def parse_json(text: str) -> Any:
    """Parse JSON without NaN and Infinity. Raise ValueError or RecursionError."""
    return json.loads(text, parse_constant=_refuse_constant)


def read_json(text: str, source: str, hint: str = "") -> Any:
    """Parse JSON; `-` is standard input. `source` names the origin in the error message."""
    content = sys.stdin.read() if text == "-" else text
    try:
        return parse_json(content)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{source} is not JSON: {error}{hint}", USAGE_ERROR) from None


def read_object(text: str, source: str) -> dict[str, Any]:
    found = read_json(text, source)
    if not isinstance(found, dict):
        raise CommandError(
            f'{source} must be a JSON object, the task\'s arguments by name, such as {{"path": "a.png"}}',
            USAGE_ERROR,
        )
    return found


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number JSON has")
