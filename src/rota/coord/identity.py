"""Identity of a lease holder: one app in one process, with the host and pid to find it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    instance: UUID
    """New with every start, because host names and pids are reused."""
    host: str
    pid: int

    def as_params(self, label: str) -> dict[str, Any]:
        """Return the identity as parameters of a statement."""
        return {"instance": self.instance, "host": self.host, "pid": self.pid, "label": label}


def new_identity() -> InstanceIdentity:
    """Return the identity of one app in one event loop of this process."""
    return InstanceIdentity(uuid4(), socket.gethostname(), os.getpid())
