"""Public objects of an application: the app, its tasks, flows and runs."""

from rota.app.flow import Flow, FlowTask
from rota.app.rota import Rota
from rota.app.run import Run
from rota.app.task import Task
from rota.engine.execution.call import BoundFlow, BoundTask

__all__ = ["BoundFlow", "BoundTask", "Flow", "FlowTask", "Rota", "Run", "Task"]
