"""The facade: what an application holds."""

from rota.app.flow import Flow, FlowTask
from rota.app.rota import Rota
from rota.app.run import Run
from rota.app.task import Task
from rota.engine.call import Call, FlowCall

__all__ = ["Call", "Flow", "FlowCall", "FlowTask", "Rota", "Run", "Task"]
