"""Rota, with workers that begin to remove what is old as soon as they are there.

What is removed, if anything, is said by ROTA_RETENTION.
"""

from __future__ import annotations

from run_rota import RotaContender
from serve import serve

from rota.engine.maintenance import pruner

pruner.FIRST_PRUNE_SECONDS = 0.0

if __name__ == "__main__":
    serve(RotaContender())
