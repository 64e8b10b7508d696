"""Flows: declare tasks and their order, start runs.

`sleep` and `wait_signal` add nodes that only wait: tasks whose jobs sleep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack, overload

from rota.app.run import Run
from rota.app.start import missing_attribute, start, start_sync
from rota.app.start_options import (
    DEFAULTS,
    START_DEFAULTS,
    FlowStartOptions,
    StartOptions,
    merged,
)
from rota.app.sync import SyncRun
from rota.engine.execution.call import BoundFlow
from rota.errors import DefinitionError
from rota.model.context import Context
from rota.model.durable_context import NO_DEFAULT, check_entry_name
from rota.model.flow import FlowDefinition, FlowNode, FlowPlan, When, task_names
from rota.model.options import check_options, show_options
from rota.model.settings import Duration, to_seconds
from rota.model.task import POLICY_DEFAULTS, TaskDefinition, TaskOptions, TaskPolicy
from rota.store import flows
from rota.store.array_literals import array_items
from rota.store.flows import JobColumns, StartRun

if TYPE_CHECKING:
    from rota.app.rota import Rota


FlowRun = Run[dict[str, Any]]


class FlowTask:
    """Task of a flow. It can be called as the original function and listed in
    `after=[…]` of other tasks."""

    def __init__(self, node: FlowNode) -> None:
        self.name = node.name
        self.fn = node.task.fn
        self.__doc__ = node.task.fn.__doc__
        self.__wrapped__ = node.task.fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original function."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<FlowTask {self.name}>"


class FlowTaskOptions(TaskOptions, total=False):
    """Options of a task of a flow."""

    after: Sequence[FlowTask | str]
    when: When
    skip_if: Callable[..., Any] | None


class Flow:
    """Graph of tasks. Start a run with `await flow.start(…)`, with the input by name."""

    def __init__(
        self, app: Rota, definition: FlowDefinition, options: StartOptions = DEFAULTS
    ) -> None:
        self._app = app
        self._definition = definition
        self._options = options
        self.name = definition.name

    # Tasks

    if not TYPE_CHECKING:  # a type checker shall still report unknown attributes

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, "flow", name)

    @overload
    def task(
        self, *, name: str | None = None, **options: Unpack[FlowTaskOptions]
    ) -> Callable[[Callable[..., Any]], FlowTask]: ...
    @overload
    def task(
        self,
        fn: Callable[..., Any],
        /,
        *,
        name: str | None = None,
        **options: Unpack[FlowTaskOptions],
    ) -> FlowTask: ...
    @show_options(TaskOptions, POLICY_DEFAULTS)
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        after: Sequence[FlowTask | str] = (),
        when: When = "all_succeeded",
        skip_if: Callable[..., Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Add a function as a task: `@flow.task`, or `@flow.task(after=[extract], …)`.

        A parameter with the name of another task makes this task wait for it and receives its result. All
        other parameters come from the input of the run.

        after     tasks to wait for without using their results
        when      required outcome of the tasks it waits for, else it is skipped: all_succeeded, none_failed
                  (some may have been skipped on purpose), all_done (any outcome) or any_failed
        skip_if   function of results and input, passed by name; if it returns true, the task is skipped
        """
        check_options(Flow.task, options, TaskOptions)
        policy = TaskPolicy.from_options(options)

        def add(fn: Callable[..., Any]) -> FlowTask:
            return self._add(fn, name, policy, tuple(task_names(after)), when, skip_if)

        return add if fn is None else add(fn)

    @overload
    def on_failure(
        self, fn: Callable[..., Any], /, *, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> FlowTask: ...
    @overload
    def on_failure(
        self, *, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[..., Any]], FlowTask]: ...
    @show_options(TaskOptions, POLICY_DEFAULTS)
    def on_failure(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Add the task that runs after all other tasks if one of them failed.

        The run still counts as failed. `await ctx.failures()` returns the failed jobs.
        """
        check_options(Flow.on_failure, options, TaskOptions)
        policy = TaskPolicy.from_options(options)

        def add(fn: Callable[..., Any]) -> FlowTask:
            return self._add(fn, name, policy, (), "any_failed", None, is_on_failure=True)

        return add if fn is None else add(fn)

    def sleep(
        self,
        name: str,
        duration: Duration,
        *,
        after: Sequence[FlowTask | str],
        when: When = "all_succeeded",
        queue: str = "default",
    ) -> FlowTask:
        """Add a node that ends `duration` after the tasks it waits for: `flow.sleep("cool", 60,
        after=[bake])`."""
        return self._add_waiting(name, sleep_node(name, duration), queue, after, when)

    def wait_signal(
        self,
        name: str,
        *,
        signal: str | None = None,
        type: Any = Any,
        timeout: Duration | None = None,
        default: Any = NO_DEFAULT,
        after: Sequence[FlowTask | str] = (),
        when: When = "all_succeeded",
        queue: str = "default",
    ) -> FlowTask:
        """Add a node that waits for a signal to the run; its result is the payload.

        The name of the signal is `signal`, or else the name of the node. If no signal arrives within
        `timeout`, the node returns the default or fails.
        """
        fn = signal_node(signal or name, type, timeout, default)
        is_builtin = any(type is each for each in BUILTIN_PAYLOADS)
        return self._add_waiting(name, fn, queue, after, when, runs_user_code=not is_builtin)

    def _add_waiting(
        self,
        name: str,
        fn: Callable[..., Any],
        queue: str,
        after: Sequence[FlowTask | str],
        when: When,
        *,
        runs_user_code: bool = False,
    ) -> FlowTask:
        policy = TaskPolicy(queue)
        task = TaskDefinition(fn, f"{self.name}.{name}", policy, runs_user_code=runs_user_code)
        return self._add_node(FlowNode(name, task, tuple(task_names(after)), when))

    def _add(
        self,
        fn: Callable[..., Any],
        name: str | None,
        policy: TaskPolicy,
        after: tuple[str, ...],
        when: When,
        skip_if: Callable[..., Any] | None,
        *,
        is_on_failure: bool = False,
    ) -> FlowTask:
        name = name or fn.__name__
        task = TaskDefinition(fn, f"{self.name}.{name}", policy)
        if skip_if is not None:
            task.skip_if = TaskDefinition(skip_if, f"{self.name}.{name}.skip_if", TaskPolicy())
            if task.skip_if.is_async or task.skip_if.takes_context:
                raise DefinitionError(
                    f"skip_if of task {name!r} must be a plain function of results and input; move a "
                    "decision that takes longer into a separate task"
                )
        return self._add_node(FlowNode(name, task, after, when, task.skip_if, is_on_failure))

    def _add_node(self, node: FlowNode) -> FlowTask:
        # For a name that is taken, the definition raises a better message.
        if node.name not in self._definition.nodes:
            self._app.registry.check_unused(node.task.name)
        self._definition.add(node)
        self._app.registry.add(node.task)
        return FlowTask(node)

    @property
    def plan(self) -> FlowPlan:
        """Checked graph of the flow."""
        return self._definition.plan

    # Runs

    @show_options(FlowStartOptions, START_DEFAULTS)
    def options(self, **options: Unpack[FlowStartOptions]) -> Flow:
        """Return the flow with other start options, as `task.options(…)`.

        `priority` applies to all of its jobs. The run expires if a job without predecessors was not claimed
        in time.
        """
        check_options(Flow.options, options, FlowStartOptions)
        return Flow(self._app, self._definition, merged(self._options, options))

    def bind(self, /, **input: Any) -> BoundFlow:
        """Return a start for `app.start_many([flow.bind(…), …])`."""
        plan, options = self.plan, self._options
        input_text, task_inputs = plan.encode(input, self._app.settings.payload_limit)
        columns = _job_columns(plan)
        priorities = (
            columns.priorities
            if options.priority is None
            else ",".join([str(options.priority)] * len(plan.nodes))
        )
        args = array_items(task_inputs.get(node.name, "{}") for node in plan.nodes)
        run = StartRun(
            flow=self.name,
            input=input_text,
            size=len(plan.nodes),
            open_jobs=plan.awaited_jobs,
            jobs=flows.with_args(columns, args, priorities),
            key=options.key,
            unique_for=options.unique_for,
            unique_open=options.unique_open,
            at=options.at,
            delay=options.delay,
            expires=options.expires,
            expires_in=options.expires_in,
        )
        return BoundFlow(plan, run)

    async def start(self, /, **input: Any) -> FlowRun:
        """Start a run. It is durable when this returns; with `options(on=…)`, when
        that connection commits."""
        return await start(self._app, self.bind(**input), self._options.on)

    @property
    def sync(self) -> SyncFlow:
        """Blocking methods: `flow.sync.start(…).result()`."""
        return SyncFlow(self)

    def __repr__(self) -> str:
        return f"<Flow {self.name}>"


class SyncFlow:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    @show_options(FlowStartOptions, START_DEFAULTS)
    def options(self, **options: Unpack[FlowStartOptions]) -> SyncFlow:
        """Return the flow with other start options, as `flow.options(…)`."""
        return SyncFlow(self._flow.options(**options))

    def start(self, /, **input: Any) -> SyncRun[dict[str, Any]]:
        flow = self._flow
        return start_sync(flow._app, flow.bind(**input), flow._options.on)


def _job_columns(plan: FlowPlan) -> JobColumns:
    """Return the columns that all runs of a flow share. They are built once."""
    found: JobColumns | None = plan.__dict__.get("columns")
    if found is None:
        numbers = plan.numbers
        found = plan.__dict__["columns"] = JobColumns(
            tasks=array_items(node.task.name for node in plan.nodes),
            queues=array_items(node.task.policy.queue for node in plan.nodes),
            priorities=",".join(str(node.task.policy.priority) for node in plan.nodes),
            args="",
            options=",".join(["NULL"] * len(plan.nodes)),
            rules=",".join(node.when for node in plan.nodes),
            predecessor_counts=",".join(
                str(len(plan.graph.predecessors[node.name])) for node in plan.nodes
            ),
            successors=array_items(
                f"{{{','.join(map(str, plan.successors(node.name)))}}}" for node in plan.nodes
            ),
            input_jobs=array_items(_result_inputs(plan, node, numbers) for node in plan.nodes),
        )
    return found


def _result_inputs(plan: FlowPlan, node: FlowNode, numbers: dict[str, int]) -> str | None:
    names = plan.result_parameters(node)
    if not names:
        return None
    return "{" + ",".join(f'"{name}":{numbers[name]}' for name in names) + "}"


BUILTIN_PAYLOADS = (Any, bool, int, float, str, list, dict)
"""Types of a signal's payload that are read without code of the user."""


def sleep_node(name: str, duration: Duration) -> Callable[..., Any]:
    sleep_seconds = to_seconds(duration)
    if not sleep_seconds >= 0:
        raise DefinitionError(
            f"{name!r} sleeps for {sleep_seconds:g} seconds; it has to be 0 or more"
        )

    async def sleep(ctx: Context) -> None:
        await ctx.sleep(timedelta(seconds=sleep_seconds))

    sleep.__doc__ = f"Sleeps for {timedelta(seconds=sleep_seconds)}."
    return sleep


def signal_node(
    signal: str, payload_type: Any, timeout: Duration | None, default: Any
) -> Callable[..., Any]:
    check_entry_name("signal", signal)
    if default is not NO_DEFAULT and timeout is None:
        raise DefinitionError(
            f"a wait for signal {signal!r} that never ends needs no default; give it a timeout, too"
        )

    async def wait(ctx: Context) -> Any:
        return await ctx.wait_signal(signal, payload_type, timeout=timeout, default=default)

    wait.__doc__ = f"Waits for signal {signal!r}."
    # The tasks that take its result are checked against this type.
    result_type = (
        payload_type
        if default is NO_DEFAULT or payload_type is Any
        else payload_type | type(default)
    )
    wait.__annotations__ = {"ctx": Context, "return": result_type}
    return wait
