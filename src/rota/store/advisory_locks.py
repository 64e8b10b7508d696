"""Advisory locks: the two-integer form, with every namespace listed here so that none can collide.

The first integer says what kind of thing is locked, the second which one. Transaction-level locks
everywhere; session-level ones only on connections nobody else uses.
"""

from __future__ import annotations

import zlib

# "ROTA" in ASCII, so that a lock of ours is recognised in pg_locks.
_NAMESPACE_BASE = 0x524F5441

MIGRATION = _NAMESPACE_BASE + 0
RETENTION = _NAMESPACE_BASE + 1
WORKER = _NAMESPACE_BASE + 2
LEADER = _NAMESPACE_BASE + 3

NAMESPACE_NAMES = {
    MIGRATION: "migration",
    RETENTION: "retention",
    WORKER: "worker",
    LEADER: "leader",
}
"""Every namespace, by what is locked in it."""


def key_of(name: str) -> int:
    """A name as a signed 32-bit key, the same in every process and version of Python."""
    value = zlib.crc32(name.encode())
    return value - 2**32 if value >= 2**31 else value
