"""Who holds something: one app in one process, with what a person needs to find it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    instance: UUID
    """Fresh with every start: a host's name and a pid come again."""
    host: str
    pid: int

    def as_params(self, label: str) -> dict[str, Any]:
        """As parameters of a statement."""
        return {"instance": self.instance, "host": self.host, "pid": self.pid, "label": label}


def new_identity() -> InstanceIdentity:
    """For one app in one event loop of this process."""
    return InstanceIdentity(uuid4(), socket.gethostname(), os.getpid())
