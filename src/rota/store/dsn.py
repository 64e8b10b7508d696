"""Where a DSN leads, and what we add to it where it says nothing of its own.

A connection on which nothing comes back is noticed by the kernel within about ten seconds, not hours.
Of several hosts, the one that can be written to is meant: after a failover the others still answer.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

CONNECT_TIMEOUT_SECONDS = 10
"""Seconds to make a connection in."""

HOST_CONNECT_TIMEOUT_SECONDS = 3
"""The same where there are other hosts to try: one that is gone must not hold up the rest for long."""

_DEFAULTS = {
    "fallback_application_name": "rota",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# Where the DSN is silent, libpq asks these; then it is they that say it.
_ENV_VARIABLES = {
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}


@lru_cache(maxsize=16)
def connection_parameters(dsn: str) -> dict[str, Any]:
    """What to connect with."""
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
