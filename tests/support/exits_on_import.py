"""A module that exits the process of an isolated task on import."""

from __future__ import annotations

import os
import sys

from rota import Rota

if (
    getattr(sys.modules["__main__"].__spec__, "name", "")
    == "rota.engine.execution.process.child_main"
):
    os._exit(7)

app = Rota("postgresql://nowhere")


@app.task(isolation="process")
def never() -> None: ...
