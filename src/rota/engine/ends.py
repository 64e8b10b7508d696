"""How something a job's code comes to is written when it begins to wait and when it ends, and what that
says when it is read again."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from rota.errors import SignalTimeout, StepFailed
from rota.model import codec
from rota.model.durably import NO_DEFAULT
from rota.model.readers import Reader
from rota.model.replay import Entry

ABANDONED = '{"type":"Abandoned","message":"","traceback":"","attempt":0}'
"""Of a step that the code did not wait for: a timeout of its own, a race that another branch has won."""

TIMED_OUT = '{"type":"SignalTimeout","message":"","traceback":"","attempt":0}'


def opened(entry: Entry, seconds: float | None) -> Entry:
    entry.open = True
    entry.seconds = seconds
    return entry


def close(entry: Entry, tries: int, began: float) -> None:
    entry.open = False
    entry.seconds = None
    entry.tries = tries
    entry.took = time.perf_counter() - began


def abandoned(entry: Entry, tries: int, began: float) -> Entry:
    """Another one: what was meant to be kept may be on its way."""
    other = msgspec.structs.replace(entry, result=None, error=ABANDONED)
    close(other, tries, began)
    return other


def heard(entry: Entry, payload: str | None, read: Reader, default: Any) -> Any:
    if payload is not None:
        return read(payload)
    if default is NO_DEFAULT:
        raise SignalTimeout(f"nobody sent signal {entry.name!r} in time")
    return default


def failure(entry: Entry, document: str) -> StepFailed:
    error = codec.read_error(document.encode())
    return StepFailed(
        f"{entry} failed: {error.type}: {error.message}",
        step=entry.name,
        kind=error.type,
        reason=error.message,
    )
