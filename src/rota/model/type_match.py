"""Type check between the result of one function and the parameter of another.

Values are passed as JSON, so only their JSON form counts: a dataclass may be read as a dict, a date as a
string. Only combinations that can never work are refused. Where the hints are not conclusive, the worker
checks the value.
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

ANY_JSON_TYPE = frozenset({"null", "bool", "int", "float", "text", "list", "object"})

_STRING_TYPES = (str, bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)
_SCALARS: tuple[tuple[type | tuple[type, ...], frozenset[str]], ...] = (
    (bool, frozenset({"bool"})),  # before int, of which it is a subclass
    (int, frozenset({"int"})),
    (float, frozenset({"float", "int"})),
    (_STRING_TYPES, frozenset({"text"})),
)
_DECIMAL_JSON_TYPES = {"text", "int", "float"}


def is_assignable(source: Any, target: Any) -> bool:
    """True if every value of type `source` may be read as `target`, as far as the hints show."""
    json_types = _json_types(source)
    if json_types == ANY_JSON_TYPE:
        return True
    if not json_types <= _accepted_json_types(target):
        return False
    source, target = _unwrap(source), _unwrap(target)
    for family in (Mapping, Collection):
        if _is_subclass(source, family) and _is_subclass(target, family):
            source_items, target_items = _item_type(source), _item_type(target)
            return (
                source_items is None
                or target_items is None
                or is_assignable(source_items, target_items)
            )
    return True


def accepts_none(target: Any) -> bool:
    return "null" in _accepted_json_types(target)


def format_type(hint: Any) -> str:
    """Return a type as written in source code."""
    if hint is None or hint is types.NoneType:
        return "None"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _unwrap(hint: Any) -> Any:
    """Return the type without Annotated, NewType and `type` aliases, which do not affect the value."""
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint


def _json_types(hint: Any) -> frozenset[str]:
    """Return the JSON types that values of this type can have."""
    hint = _unwrap(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return frozenset().union(*(_json_types(each) for each in typing.get_args(hint)))
    if origin is typing.Literal:
        return frozenset().union(*(_json_types(type(each)) for each in typing.get_args(hint)))
    kind = origin or hint
    if kind is None or kind is types.NoneType:
        return frozenset({"null"})
    if not isinstance(kind, type) or kind is object:
        return ANY_JSON_TYPE
    return _json_types_of_class(kind)


def _json_types_of_class(kind: type[Any]) -> frozenset[str]:
    if issubclass(kind, enum.Enum):
        return frozenset().union(*(_json_types(type(each.value)) for each in kind))
    for classes, json_types in _SCALARS:
        if issubclass(kind, classes):
            return json_types
    if issubclass(kind, Mapping) or _has_fields(kind):
        return frozenset({"object"})
    if issubclass(kind, Iterable):
        return frozenset({"list"})
    return ANY_JSON_TYPE


def _accepted_json_types(hint: Any) -> frozenset[str]:
    """Return the JSON types from which this type can be read."""
    hint = _unwrap(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return frozenset().union(*(_accepted_json_types(each) for each in typing.get_args(hint)))
    return frozenset(_DECIMAL_JSON_TYPES) if hint is Decimal else _json_types(hint)


def _has_fields(kind: type) -> bool:
    # A Struct with array_like is encoded as a list, and is not checked.
    if getattr(getattr(kind, "__struct_config__", None), "array_like", False):
        return False
    return any(
        hasattr(kind, attribute)
        for attribute in ("__dataclass_fields__", "__struct_fields__", "model_fields", "__total__")
    )


def _is_subclass(hint: Any, family: type) -> bool:
    kind = typing.get_origin(hint) or hint
    return (
        isinstance(kind, type) and issubclass(kind, family) and not issubclass(kind, _STRING_TYPES)
    )


def _item_type(hint: Any) -> Any:
    """Return the item type of a list, or the value type of a mapping; None if it is unknown."""
    args = [each for each in typing.get_args(hint) if each is not Ellipsis]
    if _is_subclass(hint, Mapping):
        return args[1] if len(args) == 2 else None
    return args[0] if len(args) == 1 else None
