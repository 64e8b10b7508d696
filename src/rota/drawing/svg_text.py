"""Parts of SVG pictures: numbers, escaped and truncated text, and curves."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import escape

from rota.drawing.layout import NodeBox, Point

MAX_LABEL_CHARS = 36
"""Length of a name or remark; the tooltip has the full text."""
ARROW_LENGTH = 7.0
"""Length of an arrow head."""

_INVALID_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def format_number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def numbers(**values: float) -> str:
    """Return attributes whose values are numbers: `x="1" y="2.5"`."""
    return " ".join(f'{name}="{format_number(value)}"' for name, value in values.items())


def translate(x: float, y: float) -> str:
    """Return the attribute that moves an element."""
    return f'transform="translate({format_number(x)} {format_number(y)})"'


def open_svg(
    classes: str, label: str, width: float, height: float, *, role: str = "img", more: str = ""
) -> str:
    """Return the start tag of a picture; `more` has further attributes."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{escape_text(classes)}" role="{role}" '
        f'aria-label="{escape_text(label)}" {numbers(width=width, height=height)} '
        f'viewBox="0 0 {format_number(width)} {format_number(height)}"{more}>'
    )


def escape_text(text: str) -> str:
    """Escape text for XML; characters that XML does not allow are replaced."""
    return escape(_INVALID_XML.sub("\ufffd", text))


def truncate(text: str, max_chars: int = MAX_LABEL_CHARS) -> str:
    text = " ".join(text.split())
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text. The exact width depends on the viewer's font."""
    return sum(_letter_width(letter) for letter in text) * size


def _letter_width(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    if letter in "iljtfrI.,:;'|!()[] ":
        return 0.4
    if letter in "mwMW@%…":
        return 1.0
    return 0.76 if letter.isupper() else 0.64


def arrow_head_path(box: NodeBox, *, down: bool) -> str:
    """Return the path of the arrow head for all edges that end at a box: they end at the same point."""
    length = format_number(-ARROW_LENGTH)
    if down:
        x, y, head = box.x + box.width / 2, box.y, f"l-4 {length}h8z"
    else:
        x, y, head = box.x, box.y + box.height / 2, f"l{length} -4v8z"
    return f"M{format_number(x)} {format_number(y)}{head}"


def edge_path(points: Sequence[Point], *, down: bool = False) -> str:
    """Return the path of an edge, up to its arrow head."""
    *stops, (x, y) = points
    stops.append(
        (x, y - ARROW_LENGTH + 1) if down else (x - ARROW_LENGTH + 1, y)
    )  # the arrow head covers the rest
    (x, y), *others = stops
    path = [f"M{format_number(x)} {format_number(y)}"]
    for to_x, to_y in others:
        if (x == to_x) if down else (y == to_y):
            turns: tuple[float, ...] = ()
        elif down:
            half = (y + to_y) / 2
            turns = (x, half, to_x, half)
        else:
            half = (x + to_x) / 2
            turns = (half, y, half, to_y)
        letter = "C" if turns else "L"
        path.append(letter + " ".join(format_number(each) for each in (*turns, to_x, to_y)))
        x, y = to_x, to_y
    return "".join(path)
