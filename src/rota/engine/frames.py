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
from rota.model.outcome import Again, Done, Ended, Outcome, Unstarted
from rota.store.jobs import Claimed

_LENGTH = struct.Struct(">I")
LONGEST = 64 * 1024 * 1024

T = TypeVar("T")


class Address(msgspec.Struct, frozen=True):
    """Where a function is found: in a module, by name, behind so many wrappers."""

    module: str
    name: str
    depth: int
    main: str | None = None
    """Of a function in `__main__`: the script's file, or the module's name with `is_module`."""
    is_module: bool = False


# From the worker


class Setup(msgspec.Struct, frozen=True, tag=True):
    """Said once: how to find modules as the worker does, and how to log."""

    path: list[str]
    arguments: list[str]
    logs: logs.Setup | None = None


class Begin(msgspec.Struct, frozen=True, tag=True):
    number: int
    job: Claimed
    task: str
    address: Address
    retry: dict[str, Any]
    never: list[str]
    limit: int
    draining: bool
    worker: int | None = None


class Tell(msgspec.Struct, frozen=True, tag=True):
    """The job is to stop, or the worker is about to."""

    number: int
    cancelled: bool
    draining: bool


class Reply(msgspec.Struct, frozen=True, tag=True):
    """The answer to a question: JSON, or the error it came to."""

    question: int
    value: bytes
    error: str = ""
    kind: str = ""


# From the process


class Began(msgspec.Struct, frozen=True, tag=True):
    """Modules are imported and arguments read; the code runs from now on."""

    number: int


class Over(msgspec.Struct, frozen=True, tag=True):
    number: int
    what: Literal["done", "again", "ended", "unstarted"]
    text: str | None
    delay: float
    took: float

    @classmethod
    def of(cls, number: int, outcome: Outcome, took: float) -> Over:
        match outcome:
            case Done(result):
                return cls(number, "done", result, 0.0, took)
            case Again(delay, error):
                return cls(number, "again", error, delay, took)
            case Ended(_, document):
                return cls(number, "ended", document, 0.0, took)
            case _:
                return cls(number, "unstarted", None, 0.0, took)

    @property
    def outcome(self) -> Outcome:
        match self.what:
            case "done":
                return Done(self.text)
            case "again":
                return Again(self.delay, self.text or "{}")
            case "ended":
                return Ended("failed", self.text)
            case "unstarted":
                return Unstarted()


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Something only the worker can do: a method of the job's port, and its arguments in JSON."""

    number: int
    question: int
    method: str
    arguments: bytes


FromWorker = Setup | Begin | Tell | Reply
FromProcess = Began | Over | Ask

_encoder = msgspec.msgpack.Encoder()


def pack(message: FromWorker | FromProcess) -> bytes:
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


class Unpacker(Generic[T]):
    """Bytes as they come → messages."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._heard = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Raises ValueError where it makes no sense."""
        self._heard += data
        while len(self._heard) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._heard)
            if length > LONGEST:
                raise ValueError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._heard) < end:
                return
            try:
                message = self._decoder.decode(bytes(self._heard[_LENGTH.size : end]))
            except msgspec.DecodeError as error:
                raise ValueError(str(error)) from None
            del self._heard[:end]
            yield message
