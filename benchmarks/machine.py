"""Description of the machine, without names of hosts or paths."""

from __future__ import annotations

import os
import platform

from benchmarks.cluster import Cluster


def describe(cluster: Cluster) -> dict[str, str]:
    settings = cluster.settings()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "postgresql": settings.pop("server_version"),
        **settings,
    }
