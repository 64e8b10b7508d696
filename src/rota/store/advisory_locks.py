"""Namespaces and keys of advisory locks.

Rota uses the two-integer form: the first integer is the namespace, the second the key within it. Every
namespace is listed here, so that no two collide. Locks are transaction-level. Session-level locks are
taken only on connections that are not shared.
"""

from __future__ import annotations

import zlib

# "ROTA" in ASCII, so that Rota's locks can be recognised in pg_locks.
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
"""Name of each namespace."""


def key_of(name: str) -> int:
    """Return a signed 32-bit key for a name, the same in every process and version of Python."""
    value = zlib.crc32(name.encode())
    return value - 2**32 if value >= 2**31 else value
