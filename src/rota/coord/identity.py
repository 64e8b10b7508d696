"""Who holds something: one app in one process, with what a person needs to find it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4


@dataclass(frozen=True, slots=True)
class Identity:
    instance: UUID
    """Fresh with every start: a host's name and a pid come again."""
    host: str
    pid: int

    def under(self, label: str) -> dict[str, Any]:
        """As parameters of a statement."""
        return {"instance": self.instance, "host": self.host, "pid": self.pid, "label": label}


def fresh() -> Identity:
    """For one app in one event loop of this process."""
    return Identity(uuid4(), socket.gethostname(), os.getpid())
