"""How the server is set up: what we need, over what the app asks for, over the profile.

Everything goes on the command line, so a data directory carries no trace of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from rota.localpg.postmaster import CLUSTER_NAME_OPTION

Profile = Literal["dev", "test"]

DEFAULT_PORT = 5432  # names the socket; nothing listens on it

PROFILES: Mapping[Profile, Mapping[str, str]] = {
    "dev": {
        "shared_buffers": "64MB",
        "max_wal_size": "256MB",
        "log_checkpoints": "off",
    },
    # Data that may be lost, and a disk that need not be waited for.
    "test": {
        "shared_buffers": "64MB",
        "log_checkpoints": "off",
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
    },
}


def requested_settings(profile: Profile, settings: Mapping[str, str]) -> list[str]:
    """What the app asks for, as name=value."""
    return [f"{name}={value}" for name, value in {**PROFILES[profile], **settings}.items()]


def required_settings(socket_dir: Path, port: int, *, listen: bool) -> list[str]:
    """What we rely on; the last word on a command line wins."""
    return [
        f"unix_socket_directories={socket_dir}",
        "unix_socket_permissions=0700",
        f"listen_addresses={'127.0.0.1' if listen else ''}",
        f"port={port}",
        "logging_collector=off",  # the watcher bounds the log
        "log_destination=stderr",
        "lc_messages=C",  # we read the log
        CLUSTER_NAME_OPTION,
    ]
