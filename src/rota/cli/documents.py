"""JSON that somebody typed, or that comes in by standard input."""

from __future__ import annotations

import json
import sys
from typing import Any

from rota.cli.endings import MISTAKE, Told


def read_json(text: str, what: str, hint: str = "") -> Any:
    """`what` is how it was asked for; `-` is standard input."""
    given = sys.stdin.read() if text == "-" else text
    try:
        return json.loads(given, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Told(f"{what} is not JSON: {error}{hint}", MISTAKE) from None


def read_object(text: str, what: str) -> dict[str, Any]:
    found = read_json(text, what)
    if not isinstance(found, dict):
        raise Told(
            f'{what} must be a JSON object, the task\'s arguments by name, such as {{"path": "a.png"}}',
            MISTAKE,
        )
    return found


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number JSON has")
