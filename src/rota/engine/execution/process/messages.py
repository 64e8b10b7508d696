"""Messages between a worker and the child processes of its isolated tasks, over a socket pair.

A frame is a length of four bytes and a message in MessagePack: data, never code. The worker sends attempts,
notices and replies. The process sends the begin and the outcome of an attempt, and requests of its context.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Generic, Literal, TypeVar

import msgspec

from rota import logs
from rota.model.outcome import FinalOutcome, Outcome, Retried, Returned, Succeeded
from rota.store.jobs import ClaimedJob

_LENGTH = struct.Struct(">I")
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

T = TypeVar("T")


class TaskAddress(msgspec.Struct, frozen=True):
    """Location of a function: module, qualified name, and the number of wrappers around it."""

    module: str
    name: str
    depth: int
    main: str | None = None
    """For a function in `__main__`: the script's file, or with `is_module` the module's name."""
    is_module: bool = False


# From the worker


class ChildSetup(msgspec.Struct, frozen=True, tag=True):
    """First message: the worker's `sys.path`, `sys.argv` and log settings."""

    path: list[str]
    arguments: list[str]
    logs: logs.LogSetup | None = None


class BeginAttempt(msgspec.Struct, frozen=True, tag=True):
    attempt_id: int
    job: ClaimedJob
    task: str
    address: TaskAddress
    retry: dict[str, Any]
    non_retryable: list[str]
    payload_limit: int
    draining: bool
    worker: int | None = None


class Notice(msgspec.Struct, frozen=True, tag=True):
    """Request to stop the job, or notice that the worker drains."""

    attempt_id: int
    cancelled: bool
    draining: bool


class Reply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a request: JSON, or an error."""

    request_id: int
    value: bytes
    error: str = ""
    error_type: str = ""


# From the process


class AttemptBegan(msgspec.Struct, frozen=True, tag=True):
    """Modules are imported and arguments decoded; the code runs from now on."""

    attempt_id: int


class AttemptEnded(msgspec.Struct, frozen=True, tag=True):
    attempt_id: int
    kind: Literal["done", "again", "ended", "unstarted"]
    document: str | None
    delay: float
    seconds: float

    @classmethod
    def from_outcome(cls, attempt_id: int, outcome: Outcome, seconds: float) -> AttemptEnded:
        match outcome:
            case Succeeded(result):
                return cls(attempt_id, "done", result, 0.0, seconds)
            case Retried(delay, error):
                return cls(attempt_id, "again", error, delay, seconds)
            case FinalOutcome(_, error_document):
                return cls(attempt_id, "ended", error_document, 0.0, seconds)
            case _:
                return cls(attempt_id, "unstarted", None, 0.0, seconds)

    @property
    def outcome(self) -> Outcome:
        match self.kind:
            case "done":
                return Succeeded(self.document)
            case "again":
                return Retried(self.delay, self.document or "{}")
            case "ended":
                return FinalOutcome("failed", self.document)
            case "unstarted":
                return Returned()


class Request(msgspec.Struct, frozen=True, tag=True):
    """Call of a method of the job's `ContextBackend` in the worker, with its arguments in JSON."""

    attempt_id: int
    request_id: int
    method: str
    arguments: bytes


FromWorker = ChildSetup | BeginAttempt | Notice | Reply
FromProcess = AttemptBegan | AttemptEnded | Request

_encoder = msgspec.msgpack.Encoder()


def encode(message: FromWorker | FromProcess) -> bytes:
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


class MessageReader(Generic[T]):
    """Decoder of a byte stream into messages."""

    def __init__(self, message_type: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(message_type)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Yield the messages that `data` completes. Raise ValueError if a frame is invalid."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_MESSAGE_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            try:
                message = self._decoder.decode(bytes(self._buffer[_LENGTH.size : end]))
            except msgspec.DecodeError as error:
                raise ValueError(str(error)) from None
            del self._buffer[:end]
            yield message
