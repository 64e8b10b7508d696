"""Arguments and results in JSON: values that cannot be stored are refused with an error that names them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import BaseModel

from rota.errors import ArgumentError, PayloadTooLarge
from rota.model import codec

LIMIT = 1024 * 1024


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    name: str = ""
    more: list[Any] = field(default_factory=list)


class Struct(msgspec.Struct):
    text: str
    inner: Point | None = None


class Model(BaseModel):
    text: str
    number: float = 0.0
    inner: Point | None = None


def round_trip(value: Any, kind: Any) -> Any:
    return codec.decoder(kind).decode(codec.encode(value, "it", LIMIT))


plain = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**64 - 1)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        some.lists(inner)
        | some.dictionaries(
            some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner
        )
    ),
    max_leaves=20,
)


@given(plain)
def test_codec_plain_values_round_trip(value: Any) -> None:
    text = codec.encode(value, "it", LIMIT)

    assert codec.decode(text.encode()) == json.loads(text) == value


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Point(1.5, "a", [1, "b", None]), Point),
        (Struct("s", Point(1.0)), Struct),
        (Struct("s", None), Struct),
        (Model(text="m", number=2.5, inner=Point(0.0)), Model),
        ([Model(text="m"), None], list[Model | None]),
        ({"a": {"b": [None, {"c": None}]}}, dict[str, Any]),
        (b"\x00\xff bytes", bytes),
        (datetime(2026, 3, 29, 1, 30, 0, 5, tzinfo=UTC), datetime),
        (date(2024, 2, 29), date),
        (timedelta(days=400, microseconds=1), timedelta),
        (UUID(int=7), UUID),
        (Decimal("1.10"), Decimal),
        (Colour.RED, Colour),
        ((1, "a"), tuple[int, str]),
        ({1, 2}, set[int]),
        (2**64 - 1, int),
        (-(2**63), int),
        (None, None),
    ],
    ids=repr,
)
def test_codec_typed_values_round_trip(value: Any, kind: Any) -> None:
    assert round_trip(value, kind) == value


UNSTORABLE: dict[str, tuple[Any, str]] = {
    "NUL": ("a\x00b", "NUL character"),
    "lone surrogate": ("a\ud800", "lone surrogate"),
    "NaN": (float("nan"), "nan is not a number JSON has"),
    "Infinity": (float("inf"), "inf is not a number JSON has"),
    "-Infinity": (float("-inf"), "-inf is not a number JSON has"),
}

HOLDERS: dict[str, tuple[Any, str]] = {
    "a dict": (lambda bad: {"a": {"b": bad}}, "a.b"),
    "a list": (lambda bad: {"a": [1, bad]}, r"a\[1\]"),
    "a tuple": (lambda bad: {"a": (bad,)}, r"a\[0\]"),
    "a dataclass": (lambda bad: {"a": Point(0.0, more=[bad])}, r"a\.more\[0\]"),
    "a Struct": (lambda bad: {"a": Struct("", Point(0.0, more=[bad]))}, r"a\.inner\.more\[0\]"),
    "a pydantic model": (
        lambda bad: {"a": Model(text="", inner=Point(0.0, more=[bad]))},
        r"a\.inner\.more\[0\]",
    ),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("fault", UNSTORABLE)
def test_encode_unstorable_value_is_refused_with_its_field(holder: str, fault: str) -> None:
    bad, message = UNSTORABLE[fault]
    hold, path = HOLDERS[holder]

    with pytest.raises(ArgumentError, match=rf"the arguments .*{message}.*\(in {path}\)"):
        codec.encode(hold(bad), "the arguments of task 'x'", LIMIT)


@pytest.mark.parametrize("fault", ["NUL", "lone surrogate"])
def test_encode_unstorable_key_is_refused(fault: str) -> None:
    bad, message = UNSTORABLE[fault]

    with pytest.raises(ArgumentError, match=rf"{message}.*\(in a key of a\)"):
        codec.encode({"a": {bad: 1}}, "it", LIMIT)


def test_codec_text_similar_to_unstorable_value_round_trips() -> None:
    for text in ("\\u0000", "null", "NaN", "\\ud800", "\ufffd", "\U0001f600", "\x7f\x01"):
        assert round_trip({"a": text}, dict[str, str]) == {"a": text}


def test_encode_null_is_stored_and_nan_is_refused() -> None:
    """msgspec writes NaN as null: the codec must check the value behind each null."""
    assert codec.encode([None, Point(1.0)], "it", LIMIT).startswith("[null,")
    with pytest.raises(ArgumentError, match="nan"):
        codec.encode([None, float("nan")], "it", LIMIT)


@pytest.mark.parametrize(
    "wrap", [lambda inner: [inner], lambda inner: {"k": inner}], ids=["[]", "{}"]
)
@pytest.mark.parametrize("depth", [900, 1000, 100_000])
def test_encode_deep_nesting_is_refused(wrap: Any, depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)

    with pytest.raises(ArgumentError, match="nested more than"):
        codec.encode({"deep": value}, "it", LIMIT)


def test_encode_list_containing_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(ArgumentError, match="nested more than"):
        codec.encode({"circle": circle}, "it", LIMIT)


def test_encode_counts_levels_outside_of_text_only() -> None:
    """Brackets inside strings are not levels, and brackets of siblings do not add up."""
    value = {"text": '[{"' * 2000, "many": [[1]] * 2000}

    assert codec.decode(codec.encode(value, "it", LIMIT).encode()) == value


def test_encode_deep_nesting_with_brackets_in_text_is_refused() -> None:
    value: Any = "]" * 5000
    for _ in range(901):
        value = ['}"', value]

    with pytest.raises(ArgumentError, match="nested more than 900 levels"):
        codec.encode(value, "it", LIMIT)


def test_codec_nesting_within_limit_round_trips() -> None:
    value: Any = 1
    for _ in range(800):
        value = [value]

    assert codec.decode(codec.encode(value, "it", LIMIT).encode()) == value


def test_encode_payload_of_10_mib_is_refused_with_remedy() -> None:
    with pytest.raises(PayloadTooLarge, match=r"10\.0 MiB.*256 KiB allowed.*pass a reference"):
        codec.encode("x" * 10 * 1024 * 1024, "the arguments of task 'x'", 256 * 1024)


def test_encode_limit_counts_bytes_instead_of_characters() -> None:
    assert codec.encode("x" * 98, "it", 100)
    with pytest.raises(PayloadTooLarge):
        codec.encode("é" * 98, "it", 100)


@pytest.mark.parametrize(
    "value",
    [object(), lambda: None, 1j, range(3), Exception("x")],
    ids=lambda value: type(value).__name__,
)
def test_encode_type_without_json_form_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match="cannot be stored"):
        codec.encode({"a": value}, "it", LIMIT)


def test_codec_large_integers_round_trip_exactly() -> None:
    for number in (2**53 + 1, 2**63, 2**64, -(2**63) - 1, 2**200):
        assert round_trip({"n": number}, dict[str, int]) == {"n": number}


def test_encode_integer_of_5000_digits_is_refused() -> None:
    with pytest.raises(ArgumentError, match="cannot be stored"):
        codec.encode({"n": 10**5000}, "it", LIMIT)


# Errors raised by tasks can always be stored


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a\x00b \ud800 " + "x" * 100_000),
        UnprintableError(),
        KeyError(),
        ExceptionGroup("many", [ValueError("\x00")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_encode_error_any_exception_is_storable(error: Exception) -> None:
    text = codec.encode_error(error, 3, "trace\x00back \udfff" * 10_000)

    document = json.loads(text)
    assert type(error).__qualname__ in document["type"]
    assert document["attempt"] == 3
    assert "\\u0000" not in text
    assert len(text) < 80 * 1024
    text.encode()


def test_encode_error_unstorable_characters_are_escaped_readably() -> None:
    document = json.loads(codec.encode_error(ValueError("a\x00b\ud800"), 1, ""))

    assert document == {
        **{"type": "ValueError", "message": "a\\0b\\ud800"},
        **{"traceback": "", "attempt": 1},
    }
