"""Settings of the server: those of the profile, overridden by the app's, overridden by the required ones.

All are passed on the command line, so the data directory does not contain them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from rota.localpg.postmaster import CLUSTER_NAME_OPTION

Profile = Literal["dev", "test"]

DEFAULT_PORT = 5432  # part of the socket's name; no TCP port

PROFILES: Mapping[Profile, Mapping[str, str]] = {
    "dev": {
        "shared_buffers": "64MB",
        "max_wal_size": "256MB",
        "log_checkpoints": "off",
    },
    # Data may be lost, so that no operation waits for the disk.
    "test": {
        "shared_buffers": "64MB",
        "log_checkpoints": "off",
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
    },
}


def requested_settings(profile: Profile, settings: Mapping[str, str]) -> list[str]:
    """Return the settings of the profile and the app, as name=value."""
    return [f"{name}={value}" for name, value in {**PROFILES[profile], **settings}.items()]


def required_settings(socket_dir: Path, port: int, *, listen: bool) -> list[str]:
    """Return the settings that Rota requires; the last value on a command line wins."""
    return [
        f"unix_socket_directories={socket_dir}",
        "unix_socket_permissions=0700",
        f"listen_addresses={'127.0.0.1' if listen else ''}",
        f"port={port}",
        "logging_collector=off",  # the watcher limits the size of the log
        "log_destination=stderr",
        "lc_messages=C",  # Rota parses the log
        CLUSTER_NAME_OPTION,
    ]
