"""Scheduled actions: {action, config} rows that are created at run time.

The handler of an action is a task named `action.<type>`, and the config holds its arguments. The built-in
actions can start any task of the app or send requests elsewhere. The app must therefore enable each one:
`app.actions("task", "flow", "webhook")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rota.app.flow import Flow
from rota.app.task import Task
from rota.errors import ArgumentError, DefinitionError, RunFailed, WebhookRefused
from rota.model.context import Context
from rota.model.retry import Retry
from rota.model.schedule_view import ACTION_PREFIX

if TYPE_CHECKING:
    from rota.app.rota import Rota

# A failed run has its own retries. An unknown task may become known with the next deployment, so it is
# retried.
_START_RETRY = Retry(max_attempts=5, delay=30, non_retryable=(RunFailed,))
_WEBHOOK_RETRY = Retry(max_attempts=5, delay=10, non_retryable=(WebhookRefused, ArgumentError))


def register_builtin(app: Rota, type: str, queue: str) -> None:
    """Register a built-in action with the app."""
    if type not in _BUILTIN_ACTIONS:
        raise DefinitionError(
            f"there is no built-in action {type!r}, but {', '.join(_BUILTIN_ACTIONS)}; one of your own is "
            f"@app.action({type!r})"
        )
    make_handler, retry, _ = _BUILTIN_ACTIONS[type]
    app.task(name=ACTION_PREFIX + type, queue=queue, retry=retry)(make_handler(app))


def check_config(app: Rota, type: str, config: Mapping[str, Any]) -> None:
    """Raise an error if a built-in action could never run with this config. Its types have been checked
    already."""
    handler = app.registry.tasks[ACTION_PREFIX + type]
    if handler.fn.__module__ == __name__:
        _, _, check = _BUILTIN_ACTIONS[type]
        check(app, **config)


def _task_handler(app: Rota) -> Callable[..., Any]:
    async def run_task(ctx: Context, task: str, input: dict[str, Any] | None = None) -> Any:
        return await ctx.run(_bind_task(app, task, input))

    return run_task


def _bind_task(app: Rota, task: str, input: Mapping[str, Any] | None = None) -> Any:
    found = app.registry.tasks.get(task)
    if found is None or task.startswith(ACTION_PREFIX):
        raise ArgumentError(f"this app has no task called {task!r}")
    return Task[Any, Any](app, found).bind(**(input or {}))


def _flow_handler(app: Rota) -> Callable[..., Any]:
    async def run_flow(ctx: Context, flow: str, input: dict[str, Any] | None = None) -> Any:
        return await ctx.run(_bind_flow(app, flow, input))

    return run_flow


def _bind_flow(app: Rota, flow: str, input: Mapping[str, Any] | None = None) -> Any:
    found = app.registry.flows.get(flow)
    if found is None:
        raise ArgumentError(f"this app has no flow called {flow!r}")
    return Flow(app, found).bind(**(input or {}))


def _webhook_handler(app: Rota) -> Callable[..., Any]:
    async def send_webhook(
        ctx: Context,
        url: str,
        body: Any = None,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        timeout: float = 10.0,
    ) -> int:
        from rota.engine.alerting.webhook import WebhookRequest, send
        from rota.model.webhook_hosts import WebhookHosts
        from rota.store.read import runs

        request = WebhookRequest(url, body, method, headers or {}, timeout)
        [now] = await (await app.open()).database.run_with_retry(runs.database_time())
        return await send(
            request,
            WebhookHosts.parse(app.settings.webhook_hosts),
            key=ctx.job_id,
            now=now,
            secret=app.settings.webhook_secret,
        )

    return send_webhook


def _check_webhook(app: Rota, url: str, **options: Any) -> None:
    from rota.engine.alerting.webhook import WebhookRequest
    from rota.model.webhook_hosts import WebhookHosts

    options["headers"] = options.get("headers") or {}
    WebhookRequest(url, **options)
    WebhookHosts.parse(app.settings.webhook_hosts).target_for(url)


_BUILTIN_ACTIONS: Mapping[
    str, tuple[Callable[[Rota], Callable[..., Any]], Retry, Callable[..., object]]
] = {
    "task": (_task_handler, _START_RETRY, _bind_task),
    "flow": (_flow_handler, _START_RETRY, _bind_flow),
    "webhook": (_webhook_handler, _WEBHOOK_RETRY, _check_webhook),
}
