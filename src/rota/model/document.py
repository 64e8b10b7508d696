"""Marks on the fields of a row that clients receive as a document.

A mark changes nothing in this process: an id is an integer, stored JSON is bytes. The module
`rota.operations.documents` converts and hides marked fields for clients.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated


class Mark(Enum):
    ID = auto()
    """64-bit integer, which clients receive as a string of digits."""
    JSON = auto()
    """Stored JSON, which clients receive unchanged."""
    PAYLOAD = auto()
    """Input or result of a run: stored JSON, absent for viewers."""
    ERROR = auto()
    """Stored error of a task. Viewers receive its type alone."""
    HIDDEN = auto()
    """Absent for viewers."""
    NULL_FOR_VIEWERS = auto()
    INTERNAL = auto()
    """Absent for every client."""


Id = Annotated[int, Mark.ID]
StoredJson = Annotated[bytes, Mark.JSON]
Payload = Annotated[bytes | None, Mark.PAYLOAD]
StoredError = Annotated[bytes | None, Mark.ERROR]
