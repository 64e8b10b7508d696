"""Rota with workers that start removing old runs at once.

ROTA_RETENTION sets the age of the removed runs, if any.
"""

from __future__ import annotations

from run_rota import RotaContender
from serve import serve

from rota.engine.maintenance import pruner

pruner.FIRST_PRUNE_SECONDS = 0.0

if __name__ == "__main__":
    serve(RotaContender())
