"""Scheduled actions: what rows of {action, config} made at run time may do.

A handler is a task that is called `action.<type>`, and its arguments are the config. Those that come with
Rota can start whatever the app has, or reach out of it, so each is there only where the app says so:
`app.actions("task", "flow", "webhook")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rota.app.flow import Flow
from rota.app.task import Task
from rota.errors import ArgumentError, DefinitionError, RunFailed, WebhookRefused
from rota.model.agenda import ACTION
from rota.model.context import Context
from rota.model.retry import Retry

if TYPE_CHECKING:
    from rota.app.rota import Rota

# What a run came to is its own affair, with its own retries; that a worker does not know it yet passes.
_STARTING = Retry(attempts=5, wait=30, never=(RunFailed,))
_SENDING = Retry(attempts=5, wait=10, never=(WebhookRefused, ArgumentError))


def offer(app: Rota, type: str, queue: str) -> None:
    """Have the app know one of the actions that come with Rota."""
    if type not in _OFFERED:
        raise DefinitionError(
            f"there is no built-in action {type!r}, but {', '.join(_OFFERED)}; one of your own is "
            f"@app.action({type!r})"
        )
    make, retry, _ = _OFFERED[type]
    app.task(name=ACTION + type, queue=queue, retry=retry)(make(app))


def check_config(app: Rota, type: str, config: Mapping[str, Any]) -> None:
    """Refuse a config that a built-in action could never carry out. Its types are right by now."""
    handler = app.registry.tasks[ACTION + type]
    if handler.fn.__module__ == __name__:
        _, _, check = _OFFERED[type]
        check(app, **config)


def _of_task(app: Rota) -> Callable[..., Any]:
    async def run_task(ctx: Context, task: str, input: dict[str, Any] | None = None) -> Any:
        return await ctx.run(_task_call(app, task, input))

    return run_task


def _task_call(app: Rota, task: str, input: Mapping[str, Any] | None = None) -> Any:
    found = app.registry.tasks.get(task)
    if found is None or task.startswith(ACTION):
        raise ArgumentError(f"this app has no task called {task!r}")
    return Task[Any, Any](app, found).call(**(input or {}))


def _of_flow(app: Rota) -> Callable[..., Any]:
    async def run_flow(ctx: Context, flow: str, input: dict[str, Any] | None = None) -> Any:
        return await ctx.run(_flow_call(app, flow, input))

    return run_flow


def _flow_call(app: Rota, flow: str, input: Mapping[str, Any] | None = None) -> Any:
    found = app.registry.flows.get(flow)
    if found is None:
        raise ArgumentError(f"this app has no flow called {flow!r}")
    return Flow(app, found).call(**(input or {}))


def _of_webhook(app: Rota) -> Callable[..., Any]:
    async def send_webhook(
        ctx: Context,
        url: str,
        body: Any = None,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        timeout: float = 10.0,
    ) -> int:
        from rota.engine.webhook import Hook, send
        from rota.model.hosts import Hosts
        from rota.store import views

        hook = Hook(url, body, method, headers or {}, timeout)
        [now] = await (await app.open()).database.insist(views.clock())
        return await send(
            hook,
            Hosts.parse(app.settings.webhook_hosts),
            key=ctx.job_id,
            now=now,
            secret=app.settings.webhook_secret,
        )

    return send_webhook


def _check_webhook(app: Rota, url: str, **rest: Any) -> None:
    from rota.engine.webhook import Hook
    from rota.model.hosts import Hosts

    rest["headers"] = rest.get("headers") or {}
    Hook(url, **rest)
    Hosts.parse(app.settings.webhook_hosts).place(url)


_OFFERED: Mapping[
    str, tuple[Callable[[Rota], Callable[..., Any]], Retry, Callable[..., object]]
] = {
    "task": (_of_task, _STARTING, _task_call),
    "flow": (_of_flow, _STARTING, _flow_call),
    "webhook": (_of_webhook, _SENDING, _check_webhook),
}
