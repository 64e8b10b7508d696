"""Whether what one function returns can be what another one takes.

Values travel as JSON, so what counts is what they look like there: a dataclass may become a dict, a date
a text. Refused is only what could never arrive; where hints leave it open, the worker will see.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

ANYTHING = frozenset({"null", "bool", "int", "float", "text", "list", "object"})

_TEXTS = (str, bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)
_NUMBERS_TOO = {"text", "int", "float"}


def fits(source: Any, target: Any) -> bool:
    """Whether every value of type `source` may be read as `target`, as far as the hints say."""
    kinds = _kinds(source)
    if kinds == ANYTHING:
        return True
    if not kinds <= _accepted(target):
        return False
    source, target = _bare(source), _bare(target)
    for family in (Mapping, Collection):
        if _is_a(source, family) and _is_a(target, family):
            inner, outer = _items(source), _items(target)
            return inner is None or outer is None or fits(inner, outer)
    return True


def takes_none(target: Any) -> bool:
    return "null" in _accepted(target)


def said(hint: Any) -> str:
    """A type as one would write it."""
    if hint is None or hint is types.NoneType:
        return "None"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _bare(hint: Any) -> Any:
    """Without what says nothing about the value: Annotated, NewType, `type` aliases."""
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint


def _kinds(hint: Any) -> frozenset[str]:
    """What its values can look like in JSON."""
    hint = _bare(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return frozenset().union(*(_kinds(each) for each in typing.get_args(hint)))
    if origin is typing.Literal:
        return frozenset().union(*(_kinds(type(each)) for each in typing.get_args(hint)))
    kind = origin or hint
    if kind is None or kind is types.NoneType:
        return frozenset({"null"})
    if not isinstance(kind, type) or kind is object:
        return ANYTHING
    if issubclass(kind, enum.Enum):
        return frozenset().union(*(_kinds(type(each.value)) for each in kind))
    if issubclass(kind, bool):
        return frozenset({"bool"})
    if issubclass(kind, int):
        return frozenset({"int"})
    if issubclass(kind, float):
        return frozenset({"float", "int"})
    if issubclass(kind, _TEXTS):
        return frozenset({"text"})
    if issubclass(kind, Mapping) or _has_fields(kind):
        return frozenset({"object"})
    if issubclass(kind, Iterable):
        return frozenset({"list"})
    return ANYTHING


def _accepted(hint: Any) -> frozenset[str]:
    """What JSON it can be read from."""
    hint = _bare(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return frozenset().union(*(_accepted(each) for each in typing.get_args(hint)))
    return frozenset(_NUMBERS_TOO) if hint is Decimal else _kinds(hint)


def _has_fields(kind: type) -> bool:
    # A Struct may be written as a list; then its config says so, and we say nothing.
    if getattr(getattr(kind, "__struct_config__", None), "array_like", False):
        return False
    return any(
        hasattr(kind, mark)
        for mark in ("__dataclass_fields__", "__struct_fields__", "model_fields", "__total__")
    )


def _is_a(hint: Any, family: type) -> bool:
    kind = typing.get_origin(hint) or hint
    return isinstance(kind, type) and issubclass(kind, family) and not issubclass(kind, _TEXTS)


def _items(hint: Any) -> Any:
    """The type of what is in a list or a mapping; None: not said, or not one."""
    args = [each for each in typing.get_args(hint) if each is not Ellipsis]
    if _is_a(hint, Mapping):
        return args[1] if len(args) == 2 else None
    return args[0] if len(args) == 1 else None
