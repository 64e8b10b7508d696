"""Alerts as rows: open once for what they are about, closed when it is no longer so."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.store.query import Query


class Opened(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    fresh: bool
    """It was not open before."""


class Closed(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    here: bool = True
    """By this very statement."""


def open_(alerts: Sequence[tuple[str, str, str, int | None]], host: str, pid: int) -> Query[Opened]:
    """`alerts`: kind, subject, message, and the token of the hold it is about."""
    kinds, subjects, messages, tokens = _columns(alerts, 4)
    params = {"kinds": kinds, "subjects": subjects, "messages": messages, "tokens": tokens}
    return Query("alert/raise", {**params, "host": host, "pid": pid}, Opened)


def close(alerts: Sequence[tuple[str, str, int | None]]) -> Query[Closed]:
    kinds, subjects, tokens = _columns(alerts, 3)
    return Query("alert/clear", {"kinds": kinds, "subjects": subjects, "tokens": tokens}, Closed)


def settle(known: Sequence[tuple[str, str]] = ()) -> Query[Closed]:
    """`known`: kind and subject of those one believes to be open."""
    kinds, subjects = _columns(known, 2)
    return Query("alert/settle", {"kinds": kinds, "subjects": subjects}, Closed)


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[column] for row in rows] for column in range(width)]
