"""What a worker and the processes of its isolated tasks say to each other, over a pair of sockets.

A frame is its length in four bytes and a message in MessagePack: data, never code. The worker says what
to run and when to stop; the process says when it begins, what came of it, and what its context asks for.
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
    """Where a function is found: in a module, by name, behind so many wrappers."""

    module: str
    name: str
    depth: int
    main: str | None = None
    """Of a function in `__main__`: the script's file, or the module's name with `is_module`."""
    is_module: bool = False


# From the worker


class ChildSetup(msgspec.Struct, frozen=True, tag=True):
    """Said once: how to find modules as the worker does, and how to log."""

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
    """The job is to stop, or the worker is about to."""

    attempt_id: int
    cancelled: bool
    draining: bool


class Reply(msgspec.Struct, frozen=True, tag=True):
    """The answer to a question: JSON, or the error it came to."""

    request_id: int
    value: bytes
    error: str = ""
    error_type: str = ""


# From the process


class AttemptBegan(msgspec.Struct, frozen=True, tag=True):
    """Modules are imported and arguments read; the code runs from now on."""

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
    """Something only the worker can do: a method of the job's port, and its arguments in JSON."""

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
    """Bytes as they come → messages."""

    def __init__(self, message_type: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(message_type)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Raises ValueError where it makes no sense."""
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
