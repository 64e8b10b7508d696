"""Readers of stored values: results of steps, by the hint of the function, and payloads of signals."""

from __future__ import annotations

import collections.abc
import functools
import typing
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from rota.errors import DefinitionError, ResultError
from rota.model import codec

Reader = Callable[[str | None], Any]

_cache: WeakKeyDictionary[Any, Reader] = WeakKeyDictionary()

_AWAITABLE = (collections.abc.Awaitable, collections.abc.Coroutine)


def reader_of_function(fn: Callable[..., Any]) -> Reader:
    """Return a reader for the results of a function. Without a return hint it returns plain JSON values."""
    fn = _unwrap(fn)
    if isinstance(fn, type):
        return reader_of_type(fn, f"the result of {fn.__qualname__}")
    if "return" not in getattr(fn, "__annotations__", ()):
        return _read_any
    found = _cache.get(fn)
    if found is None:
        found = _cache[fn] = _build_reader(fn)
    return found


def reader_of_type(kind: Any, subject: str) -> Reader:
    """Return a reader for values of a type. `subject` names the value in errors."""
    if kind is Any:
        return _read_any
    try:
        decoder = codec.decoder(kind)
    except TypeError as error:
        raise DefinitionError(f"{subject} is {kind}, which has no form in JSON: {error}") from error

    def read(result: str | None) -> Any:
        try:
            return None if result is None else decoder.decode(result)
        except msgspec.ValidationError as error:
            raise ResultError(
                f"{subject} is not {getattr(kind, '__name__', kind)}: {codec.describe(error)}"
            ) from None
        except NotImplementedError as error:
            raise ResultError(f"{subject} cannot be read: {error}") from None

    return read


def _unwrap(fn: Any) -> Any:
    """Return the function with the return hint: of a partial, a method, a task or a callable object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    if isinstance(fn, type) or "return" in getattr(fn, "__annotations__", ()):
        return fn
    wrapped = getattr(fn, "__wrapped__", None)
    return type(fn).__call__ if wrapped is None else _unwrap(wrapped)


def _build_reader(fn: Callable[..., Any]) -> Reader:
    name = getattr(fn, "__qualname__", repr(fn))
    try:
        kind = typing.get_type_hints(fn, include_extras=True)["return"]
    except NameError as error:
        raise DefinitionError(
            f"{name}: {error}; the type hints of a step must name things that exist at run time"
        ) from error
    if typing.get_origin(kind) in _AWAITABLE:
        kind = typing.get_args(kind)[-1]
    return reader_of_type(kind, f"the result of {name}")


def _read_any(result: str | None) -> Any:
    return None if result is None else codec.decode(result.encode())
