"""Connection parameters: those of the DSN, with defaults for those it does not set.

The kernel detects a dead connection within about ten seconds instead of hours. With several hosts the
default is the writable one: after a failover the others still answer.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

CONNECT_TIMEOUT_SECONDS = 10

HOST_CONNECT_TIMEOUT_SECONDS = 3
"""Shorter timeout with several hosts, so that a host that is down does not delay the next for long."""

_DEFAULTS = {
    "fallback_application_name": "rota",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# Environment variables of libpq that take precedence over these defaults where the DSN has no
# value.
_ENV_VARIABLES = {
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}


@lru_cache(maxsize=16)
def connection_parameters(dsn: str) -> dict[str, Any]:
    """Return the parameters to connect with."""
    from psycopg.conninfo import conninfo_to_dict

    given = dict(conninfo_to_dict(dsn))
    for name, variable in _ENV_VARIABLES.items():
        if name not in given and os.environ.get(variable):
            given[name] = os.environ[variable]
    has_several_hosts = any("," in str(given.get(name) or "") for name in ("host", "hostaddr"))
    if not given.get("host") and not given.get("hostaddr"):
        has_several_hosts = "," in os.environ.get("PGHOST", "")
    defaults: dict[str, Any] = {**_DEFAULTS, "connect_timeout": CONNECT_TIMEOUT_SECONDS}
    if has_several_hosts:
        defaults |= {
            "target_session_attrs": "read-write",
            "connect_timeout": HOST_CONNECT_TIMEOUT_SECONDS,
        }
    return {**defaults, **given, "client_encoding": "utf8"}
