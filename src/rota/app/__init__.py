"""The facade: what an application holds."""

from rota.app.rota import Rota
from rota.app.run import Run
from rota.app.task import Call, Task

__all__ = ["Call", "Rota", "Run", "Task"]
