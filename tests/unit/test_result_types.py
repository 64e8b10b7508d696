"""Decoding of stored step results by the return hint of the step's function."""

from __future__ import annotations

import functools
import gc
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel

from rota import Rota
from rota.errors import DefinitionError, ResultError
from rota.model import result_types
from rota.model.result_types import reader_of_function, reader_of_type

if TYPE_CHECKING:
    from nowhere import Nothing  # type: ignore[import-not-found]

T = TypeVar("T")


@dataclass
class Point:
    x: int


class Box(msgspec.Struct, Generic[T]):
    content: T


class Order(BaseModel):
    number: int


class Shop:
    def sell(self) -> Point:
        raise NotImplementedError

    @classmethod
    def open(cls) -> Point:
        raise NotImplementedError

    @staticmethod
    def close() -> Point:
        raise NotImplementedError

    def __call__(self) -> Order:
        raise NotImplementedError


async def coroutine() -> Point:
    raise NotImplementedError


def awaitable() -> Awaitable[Point]:
    raise NotImplementedError


def pending() -> Coroutine[Any, Any, list[Point]]:
    raise NotImplementedError


def generic() -> Box[Decimal]:
    raise NotImplementedError


def union() -> Point | None:
    raise NotImplementedError


def annotated() -> Annotated[int, msgspec.Meta(ge=0)]:
    raise NotImplementedError


def anything() -> Any:
    raise NotImplementedError


def nothing() -> None: ...


def id() -> UUID:
    raise NotImplementedError


@functools.wraps(coroutine)
async def wrapped(*args: Any) -> Any:
    raise NotImplementedError


@functools.lru_cache
def cached() -> Point:
    raise NotImplementedError


POINT = '{"x":3}'


@pytest.mark.parametrize(
    ("fn", "stored", "value"),
    [
        (coroutine, POINT, Point(3)),
        (awaitable, POINT, Point(3)),
        (pending, f"[{POINT}]", [Point(3)]),
        (generic, '{"content":"1.50"}', Box(Decimal("1.50"))),
        (union, POINT, Point(3)),
        (union, "null", None),
        (annotated, "3", 3),
        (anything, POINT, {"x": 3}),
        (nothing, "null", None),
        (id, '"12345678-1234-5678-1234-567812345678"', UUID("1234567812345678" * 2)),
        (wrapped, POINT, Point(3)),
        (cached, POINT, Point(3)),
        (Shop().sell, POINT, Point(3)),
        (Shop.open, POINT, Point(3)),
        (Shop.close, POINT, Point(3)),
        (Shop(), '{"number":3}', Order(number=3)),
        (Point, POINT, Point(3)),
        (Order, '{"number":3}', Order(number=3)),
        (int, "3", 3),
        (functools.partial(coroutine), POINT, Point(3)),
        (functools.partial(functools.partial(Shop().sell)), POINT, Point(3)),
        (functools.partial(Point, x=1), POINT, Point(3)),
        (lambda: None, POINT, {"x": 3}),
        (len, "3", 3),
        (functools.partial(lambda: None), POINT, {"x": 3}),
    ],
)
def test_reader_decodes_by_return_hint_of_function(
    fn: Callable[..., Any], stored: str, value: Any
) -> None:
    found = reader_of_function(fn)(stored)
    assert found == value
    assert type(found) is type(value)
    assert reader_of_function(fn)(None) is None


def test_reader_of_task_uses_hint_of_its_function(app: Rota) -> None:
    assert reader_of_function(app.task(name="sell")(coroutine))(POINT) == Point(3)


def test_reader_mismatch_names_type_and_field() -> None:
    with pytest.raises(ResultError) as error:
        reader_of_function(coroutine)('{"x":"three"}')
    assert str(error.value) == (
        "the result of coroutine is not Point: Expected `int`, got `str` (in x)"
    )
    with pytest.raises(ResultError, match="Order"):
        reader_of_function(Order)('{"number":"three"}')
    with pytest.raises(ResultError, match=r"^the word is not int: Expected `int`, got `str`$"):
        reader_of_type(int, "the word")('"three"')


def test_reader_of_unsupported_hint_raises_definition_error() -> None:
    def both() -> Point | dict[str, int]:
        raise NotImplementedError

    with pytest.raises(DefinitionError, match=r"the result of .*both is .* no form in JSON"):
        reader_of_function(both)

    def unknown() -> Nothing:
        raise NotImplementedError

    with pytest.raises(DefinitionError, match="'Nothing' is not defined; the type hints of a step"):
        reader_of_function(unknown)


def test_reader_of_class_without_json_form_raises_result_error() -> None:
    class Own:
        pass

    with pytest.raises(ResultError, match="cannot be read"):
        reader_of_function(Own)('{"x":3}')


def test_reader_cache_drops_collected_functions() -> None:
    before = len(result_types._cache)

    def make() -> Callable[[], int]:
        def made() -> int:
            return 3

        return made

    for _ in range(100):
        assert reader_of_function(make())("3") == 3
    gc.collect()
    assert len(result_types._cache) <= before + 1
