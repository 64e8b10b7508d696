"""Registry of an app: tasks, flows and services by name."""

from __future__ import annotations

from collections.abc import Mapping

from rota.errors import DefinitionError
from rota.model.flow import FlowDefinition
from rota.model.service import ServiceDefinition
from rota.model.task import TaskDefinition


class Registry:
    def __init__(self) -> None:
        self._tasks: dict[str, TaskDefinition] = {}
        self._flows: dict[str, FlowDefinition] = {}
        self._services: dict[str, ServiceDefinition] = {}

    def add(self, task: TaskDefinition) -> None:
        self.check_unused(task.name)
        self._tasks[task.name] = task

    def add_flow(self, flow: FlowDefinition) -> None:
        self.check_unused(flow.name)
        self._flows[flow.name] = flow

    def add_service(self, service: ServiceDefinition) -> None:
        if service.name in self._services:
            raise DefinitionError(
                f"there is a service called {service.name!r} already; give one of them another name"
            )
        self._services[service.name] = service

    def check_unused(self, name: str) -> None:
        """Raise DefinitionError if a task or flow has this name."""
        for kind, names in (("task", self._tasks), ("flow", self._flows)):
            if name in names:
                raise DefinitionError(
                    f"there is a {kind} called {name!r} already; give one of them another name"
                )

    def get(self, name: str) -> TaskDefinition | None:
        return self._tasks.get(name)

    @property
    def tasks(self) -> Mapping[str, TaskDefinition]:
        """Tasks by name; tasks of flows under the names of the flow and the task: etl.extract."""
        return self._tasks

    @property
    def flows(self) -> Mapping[str, FlowDefinition]:
        return self._flows

    @property
    def services(self) -> Mapping[str, ServiceDefinition]:
        return self._services
