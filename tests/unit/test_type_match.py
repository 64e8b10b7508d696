"""Compatibility of result types and parameter types, by their JSON form."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel

from rota.model.type_match import accepts_none, format_type, is_assignable


@dataclass
class Order:
    items: int


class Struct(msgspec.Struct):
    items: int


class Row(msgspec.Struct, array_like=True):
    items: int


class Typed(TypedDict):
    items: int


class Model(BaseModel):
    items: int


class Number(enum.Enum):
    ONE = 1


class Word(enum.Enum):
    ONE = "one"


class Pair(NamedTuple):
    left: int
    right: int


UserId = NewType("UserId", int)

FIT: list[tuple[Any, Any]] = [
    (int, int),
    (int, float),
    (float, float),
    (int, Decimal),
    (str, Decimal),
    (Decimal, str),
    (int, int | None),
    (None, None),
    (None, int | None),
    (int | None, float | None),
    (Optional[int], Optional[float]),  # noqa: UP045 - both ways of saying it
    (int | str, int | str | None),
    (UserId, int),
    (int, UserId),
    (Annotated[int, "some"], int),
    (int, Annotated[int, "some"]),
    (list[int], list[float]),
    (list[int], set[int]),
    (set[int], list[int]),
    (list[int], tuple[int, ...]),
    (frozenset[str], list[str]),
    (Sequence[str], list[str]),
    (Iterable[int], list[int]),
    (list[list[int]], list[list[float]]),
    (list, list[int]),
    (list[int], list),
    (Pair, list),
    (dict[str, int], dict[str, float]),
    (dict, dict[str, int]),
    (dict, Order),
    (Order, dict),
    (Order, dict[str, int]),
    (Order, Struct),
    (Struct, Typed),
    (Typed, Model),
    (Model, dict),
    (list[Order], list[dict[str, Any]]),
    (str, datetime),
    (datetime, str),
    (date, str),
    (UUID, str),
    (bytes, str),
    (str, Literal["a", "b"]),
    (Literal["a"], str),
    (Literal[1], int),
    (Number, int),
    (Word, str),
    (str, Word),
    # Hints that leave the type open: the worker checks the value.
    (Any, int),
    (Any, None),
    (object, int),
    (int, Any),
    (int, object),
    (list[Any], list[int]),
    (dict[str, Any], dict[str, int]),
    (Row, list),
    (msgspec.Raw, int),
]

DO_NOT_FIT: list[tuple[Any, Any]] = [
    (float, int),
    (str, int),
    (int, str),
    (bool, int),
    (int, bool),
    (None, int),
    (int, None),
    (int | None, int),
    (int | str, int),
    (list[str], list[int]),
    (list[list[str]], list[list[int]]),
    (Sequence[str], list[int]),
    (set[float], list[int]),
    (dict[str, str], dict[str, int]),
    (dict[str, list[str]], dict[str, list[int]]),
    (dict, list),
    (list, dict),
    (Order, int),
    (Order, list),
    (str, list[str]),
    (list[str], str),
    (Word, int),
    (Number, str),
    (Literal["a"], int),
    (int, datetime),
    (Decimal, int),
    (timedelta, dict),
    (UserId, str),
]


def ids(pairs: list[tuple[Any, Any]]) -> list[str]:
    return [f"{format_type(one)} to {format_type(other)}" for one, other in pairs]


@pytest.mark.parametrize(("source", "target"), FIT, ids=ids(FIT))
def test_is_assignable_compatible_json_types_is_true(source: Any, target: Any) -> None:
    assert is_assignable(source, target)


@pytest.mark.parametrize(("source", "target"), DO_NOT_FIT, ids=ids(DO_NOT_FIT))
def test_is_assignable_incompatible_json_types_is_false(source: Any, target: Any) -> None:
    assert not is_assignable(source, target)


def test_accepts_none_is_true_only_for_optional_and_open_hints() -> None:
    for hint in (None, int | None, Optional[int], Any, object, Literal[None]):  # noqa: UP045
        assert accepts_none(hint), hint
    for hint in (int, str, list[int], dict, int | str):
        assert not accepts_none(hint), hint


def test_format_type_returns_the_source_form() -> None:
    assert [format_type(hint) for hint in (int, None, list[str], int | None, Order)] == [
        "int",
        "None",
        "list[str]",
        "int | None",
        "Order",
    ]
