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
from rota.model.replay import JournalEntry

ABANDONED_ERROR = '{"type":"Abandoned","message":"","traceback":"","attempt":0}'
"""Of a step that the code did not wait for: a timeout of its own, a race that another branch has won."""

SIGNAL_TIMEOUT_ERROR = '{"type":"SignalTimeout","message":"","traceback":"","attempt":0}'


def open_entry(entry: JournalEntry, seconds: float | None) -> JournalEntry:
    entry.is_open = True
    entry.seconds = seconds
    return entry


def close_entry(entry: JournalEntry, tries: int, began: float) -> None:
    entry.is_open = False
    entry.seconds = None
    entry.tries = tries
    entry.duration = time.perf_counter() - began


def abandoned_entry(entry: JournalEntry, tries: int, began: float) -> JournalEntry:
    """Another one: what was meant to be kept may be on its way."""
    other = msgspec.structs.replace(entry, result=None, error=ABANDONED_ERROR)
    close_entry(other, tries, began)
    return other


def signal_value(entry: JournalEntry, payload: str | None, read: Reader, default: Any) -> Any:
    if payload is not None:
        return read(payload)
    if default is NO_DEFAULT:
        raise SignalTimeout(f"nobody sent signal {entry.name!r} in time")
    return default


def step_failed(entry: JournalEntry, document: str) -> StepFailed:
    error = codec.decode_error(document.encode())
    return StepFailed(
        f"{entry} failed: {error.type}: {error.message}",
        step=entry.name,
        kind=error.type,
        reason=error.message,
    )
