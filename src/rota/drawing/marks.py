"""What our pictures are written with: numbers, words that fit and cannot break out, and curves."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import escape

from rota.drawing.layout import Point

LONGEST = 36
"""Characters of a name or a remark; the rest is in the tooltip."""
HEAD = 7.0
"""How long the head of an edge is."""

_UNSAYABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def said(words: str) -> str:
    """Text for XML, which cannot say every character, escaped or not."""
    return escape(_UNSAYABLE.sub("\ufffd", words))


def cut(words: str, longest: int = LONGEST) -> str:
    words = " ".join(words.split())
    return words if len(words) <= longest else words[: longest - 1] + "…"


def extent(words: str, size: float) -> float:
    """About how wide words are: nobody can measure a font that is chosen where the picture is seen."""
    return sum(_advance(letter) for letter in words) * size


def _advance(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    if letter in "iljtfrI.,:;'|!()[] ":
        return 0.4
    if letter in "mwMW@%…":
        return 1.0
    return 0.76 if letter.isupper() else 0.64


def curve(points: Sequence[Point], *, down: bool = False) -> str:
    """The path of an edge, up to where its head begins."""
    *most, (x, y) = points
    most.append((x, y - HEAD + 1) if down else (x - HEAD + 1, y))  # the head covers the rest
    (x, y), *others = most
    path = [f"M{number(x)} {number(y)}"]
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
        path.append(letter + " ".join(number(each) for each in (*turns, to_x, to_y)))
        x, y = to_x, to_y
    return "".join(path)
