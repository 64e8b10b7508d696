"""The part of PostgreSQL's protocol that the proxy needs: message boundaries, and which message commits.

Nothing here reads or writes a socket. Only frames and the texts of a client's statements are parsed.
Encryption is not supported.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
CANCEL_REQUEST = 80877102

_WRITES = re.compile(
    rb"\b(?:insert|(?<!for )(?<!key )update|delete|merge|copy|call)\b", re.IGNORECASE
)
_BEGINS = re.compile(rb"\s*(?:begin|start\s+transaction)\b", re.IGNORECASE)
_COMMITS = re.compile(rb"\s*(?:commit|end)\b", re.IGNORECASE)
_ENDS = re.compile(rb"\s*(?:rollback(?!\s+to)|abort|prepare\s+transaction)\b", re.IGNORECASE)


class MessageSplitter:
    """Splits a stream into messages. A client's messages before its startup have no type, all later ones
    do.
    """

    def __init__(self, *, typed: bool) -> None:
        self.typed = typed
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        while True:
            header_size = 1 if self.typed else 0
            if len(self._buffer) < header_size + 4:
                return
            size: int = header_size + struct.unpack_from("!i", self._buffer, header_size)[0]
            if len(self._buffer) < size:
                return
            message = bytes(self._buffer[:size])
            del self._buffer[:size]
            yield message


def request_code(message: bytes) -> int:
    """Return the request code of a message without a type."""
    code: int = struct.unpack_from("!i", message, 4)[0]
    return code


def application_name(startup: bytes) -> str:
    """Return the application name of a startup message, or ""."""
    fields = startup[8:].split(b"\0")
    parameters = dict(zip(fields[::2], fields[1::2], strict=False))
    return parameters.get(b"application_name", b"").decode(errors="replace")


@dataclass(slots=True)
class ClientTurn:
    """Messages of a client up to a Sync or Query: statements that the server completes together."""

    number: int
    statements: list[bytes] = field(default_factory=list)
    commits: bool = False

    def matches(self, pattern: re.Pattern[bytes] | None) -> bool:
        return pattern is None or any(pattern.search(text) for text in self.statements)


class TurnTracker:
    """Tracks the statements of one client, and whether the end of a turn commits.

    A turn commits if it contains a COMMIT, or if it writes outside of a transaction block.
    """

    def __init__(self) -> None:
        self._prepared: dict[bytes, bytes] = {}
        self._portals: dict[bytes, bytes] = {}
        self._in_block = False
        self._turn = ClientTurn(1)
        self._has_write = False
        self._has_commit = False
        self._block_has_write = False

    def on_client_message(self, message: bytes) -> ClientTurn | None:
        """Track a typed message of the client, and return the turn that it ends, if any."""
        kind, body = message[:1], message[5:]
        if kind == b"P":
            name, text = body.split(b"\0", 2)[:2]
            self._prepared[name] = text
        elif kind == b"B":
            portal, name = body.split(b"\0", 2)[:2]
            self._portals[portal] = self._prepared.get(name, b"")
        elif kind == b"E":
            self._track_statement(self._portals.get(body.split(b"\0", 1)[0], b""))
        elif kind == b"Q":
            for text in body.rstrip(b"\0").split(b";"):
                self._track_statement(text)
            return self._end_turn()
        elif kind == b"S":
            return self._end_turn()
        return None

    def on_server_ready(self, status: bytes) -> None:
        """Update the state of the transaction block from the server's ReadyForQuery, which is
        authoritative.
        """
        if status == b"I" and not self._turn.statements:
            self._in_block = self._block_has_write = False

    def _track_statement(self, text: bytes) -> None:
        self._turn.statements.append(text)
        if _BEGINS.match(text):
            self._in_block, self._block_has_write = True, False
        elif _COMMITS.match(text):
            self._has_commit |= self._block_has_write
            self._in_block = self._block_has_write = False
        elif _ENDS.match(text):
            self._in_block = self._block_has_write = False
        elif _WRITES.search(text):
            self._has_write |= not self._in_block
            self._block_has_write |= self._in_block

    def _end_turn(self) -> ClientTurn:
        turn = self._turn
        turn.commits = self._has_commit or self._has_write
        self._turn = ClientTurn(turn.number + 1)
        self._has_write = self._has_commit = False
        return turn
