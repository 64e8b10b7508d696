"""An app whose module prints when it is imported."""

from __future__ import annotations

from rota import Rota

print("hello from the module")

app = Rota()


@app.task
async def work() -> None:
    print("hello from the task")
