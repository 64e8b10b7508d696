"""An app that can be imported until somebody lays a file called `broken` beside the current directory."""

from __future__ import annotations

import os
from pathlib import Path

from rota import Rota

if Path(os.environ["MOOD"]).exists():
    raise RuntimeError("not in the mood")

app = Rota()


@app.task
async def hum() -> None:
    """Nothing to do."""
