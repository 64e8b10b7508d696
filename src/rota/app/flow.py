"""A flow as its app has it: write its tasks, start runs of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from rota.app.blocking import BlockingRun
from rota.app.how import PLAIN, How, said
from rota.app.nodes import sleeping, waiting
from rota.app.run import Run
from rota.engine import tracing
from rota.engine.call import FlowCall
from rota.engine.spans import FLOW
from rota.errors import ArgumentError, DefinitionError
from rota.model.durably import NO_DEFAULT
from rota.model.flow import FlowDefinition, Node, Plan, When, named
from rota.model.retry import Retry
from rota.model.settings import Duration
from rota.model.task import Definition, Isolation, OnDead, Policy
from rota.store import flows
from rota.store.arrays import inside
from rota.store.flows import Columns, StartRun
from rota.store.jobs import Started
from rota.store.on import is_async, run_on

if TYPE_CHECKING:
    from rota.app.rota import Rota

FlowRun = Run[dict[str, Any]]


class FlowTask:
    """One task of a flow: call it as the function it was, name it in another one's `after=[…]`."""

    def __init__(self, node: Node) -> None:
        self.name = node.name
        self.fn = node.task.fn
        self.__doc__ = node.task.fn.__doc__
        self.__wrapped__ = node.task.fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function it was."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<FlowTask {self.name}>"


class Flow:
    """A graph of tasks. Start it with `await flow.start(…)`, the run's input by name."""

    def __init__(self, app: Rota, definition: FlowDefinition, how: How = PLAIN) -> None:
        self._app = app
        self._definition = definition
        self._how = how
        self.name = definition.name

    # Its tasks

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        after: Sequence[FlowTask | str] = (),
        when: When = "all_succeeded",
        skip_if: Callable[..., Any] | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        on_dead: OnDead = "revive",
        crashes: int = 3,
        hold: Duration | None = None,
        isolation: Isolation = None,
    ) -> Callable[[Callable[..., Any]], FlowTask]: ...
    @overload
    def task(
        self,
        fn: Callable[..., Any],
        /,
        *,
        name: str | None = None,
        after: Sequence[FlowTask | str] = (),
        when: When = "all_succeeded",
        skip_if: Callable[..., Any] | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        on_dead: OnDead = "revive",
        crashes: int = 3,
        hold: Duration | None = None,
        isolation: Isolation = None,
    ) -> FlowTask: ...
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        after: Sequence[FlowTask | str] = (),
        when: When = "all_succeeded",
        skip_if: Callable[..., Any] | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        on_dead: OnDead = "revive",
        crashes: int = 3,
        hold: Duration | None = None,
        isolation: Isolation = None,
    ) -> Any:
        """Add a function as a task: `@flow.task`, or `@flow.task(after=[extract], …)`.

        A parameter with the name of another task waits for it and is given its result; the others come
        from the run's input.

        after     tasks it waits for without taking their results
        when      what those it waits for must have come to: all_succeeded, none_failed (some may have been
                  skipped on purpose), all_done (whatever they came to) or any_failed; else it is skipped
        skip_if   a function of results and input, taken by name: if it answers true the task is skipped
        """

        def add(fn: Callable[..., Any]) -> FlowTask:
            policy = Policy.of(
                queue=queue,
                priority=priority,
                retry=retry,
                timeout=timeout,
                on_dead=on_dead,
                crashes=crashes,
                hold=hold,
                isolation=isolation,
            )
            return self._add(fn, name, policy, tuple(named(after)), when, skip_if)

        return add if fn is None else add(fn)

    @overload
    def on_failure(
        self,
        fn: Callable[..., Any],
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        on_dead: OnDead = "revive",
        crashes: int = 3,
        hold: Duration | None = None,
        isolation: Isolation = None,
    ) -> FlowTask: ...
    @overload
    def on_failure(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        on_dead: OnDead = "revive",
        crashes: int = 3,
        hold: Duration | None = None,
        isolation: Isolation = None,
    ) -> Callable[[Callable[..., Any]], FlowTask]: ...
    def on_failure(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        on_dead: OnDead = "revive",
        crashes: int = 3,
        hold: Duration | None = None,
        isolation: Isolation = None,
    ) -> Any:
        """Add the task that runs when a run is over and something in it has failed. The run has failed all
        the same; `await ctx.failures()` says what."""

        def add(fn: Callable[..., Any]) -> FlowTask:
            policy = Policy.of(
                queue=queue,
                priority=priority,
                retry=retry,
                timeout=timeout,
                on_dead=on_dead,
                crashes=crashes,
                hold=hold,
                isolation=isolation,
            )
            return self._add(fn, name, policy, (), "any_failed", None, last=True)

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
        """Add a node that ends so long after those it waits for: `flow.sleep("cool", 60, after=[bake])`."""
        fn = sleeping(name, duration)
        return self._add(fn, name, Policy(queue), tuple(named(after)), when, None)

    def wait(
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
        """Add a node that waits until somebody sends the run a signal, of its own name or another, and
        whose result is what that said. One that nobody sent in time fails, or answers the default."""
        fn = waiting(signal or name, type, timeout, default)
        return self._add(fn, name, Policy(queue), tuple(named(after)), when, None)

    def _add(
        self,
        fn: Callable[..., Any],
        name: str | None,
        policy: Policy,
        after: tuple[str, ...],
        when: When,
        skip_if: Callable[..., Any] | None,
        *,
        last: bool = False,
    ) -> FlowTask:
        name = name or fn.__name__
        task = Definition(fn, f"{self.name}.{name}", policy)
        if skip_if is not None:
            task.skip_if = Definition(skip_if, f"{self.name}.{name}.skip_if", Policy())
            if task.skip_if.is_async or task.skip_if.takes_context:
                raise DefinitionError(
                    f"skip_if of task {name!r} must be a plain function of results and input; decide what "
                    "takes longer in a task of its own"
                )
        node = Node(name, task, after, when, task.skip_if, last)
        if name not in self._definition.nodes:  # that is said better there
            self._app.registry.check(task.name)
        self._definition.add(node)
        self._app.registry.add(task)
        return FlowTask(node)

    @property
    def plan(self) -> Plan:
        """The whole graph, checked."""
        return self._definition.plan

    # Its runs

    def using(
        self,
        *,
        key: str | None = None,
        unique: Literal["always", "open"] | Duration = "always",
        delay: Duration | None = None,
        at: datetime | None = None,
        expires: Duration | datetime | None = None,
        priority: int | None = None,
        on: Any = None,
    ) -> Flow:
        """The same flow, started another way; as `task.using(…)`. `priority` goes for all of its jobs; the
        run expires if those that wait for nobody were not taken in time."""
        how = said(
            self._how,
            key=key,
            unique=unique,
            delay=delay,
            at=at,
            expires=expires,
            priority=priority,
            on=on,
        )
        return Flow(self._app, self._definition, how)

    def call(self, /, **input: Any) -> FlowCall:
        """A start to be made together with others: `app.start_many([flow.call(…), …])`."""
        plan, how = self.plan, self._how
        whole, shares = plan.encode(input, self._app.settings.payload_limit)
        jobs = _columns(plan)
        lanes = (
            jobs.lanes if how.priority is None else ",".join([str(how.priority)] * len(plan.nodes))
        )
        args = inside(shares.get(node.name, "{}") for node in plan.nodes)
        run = StartRun(
            flow=self.name,
            input=whole,
            size=len(plan.nodes),
            open=plan.open,
            jobs=flows.with_args(jobs, args, lanes),
            key=how.key,
            unique_for=how.unique_for,
            unique_open=how.unique_open,
            at=how.at,
            delay=how.delay,
            expires=how.expires,
            expires_in=how.expires_in,
        )
        return FlowCall(plan, run)

    async def start(self, /, **input: Any) -> FlowRun:
        """Start a run; it is durable when this returns. With `using(on=…)`, when that commits."""
        call = self.call(**input)
        if self._how.on is None:
            client = await self._app.open()
            [started] = await client.start_runs([call])
        else:
            with self._traced() as span:
                answer = self._on(call, span.trace)
                [started] = await answer if isinstance(answer, Awaitable) else answer
                span.tell(tracing.started(started))
        return self._run(started)

    def _traced(self) -> tracing.Around:
        return self._app.tracing.start(self.name, what=FLOW)

    def _on(
        self, call: FlowCall, trace: str | None
    ) -> Sequence[Started] | Awaitable[Sequence[Started]]:
        traces = None if trace is None else [trace]
        query = flows.start([call.run], notify=self._app.settings.notify, traces=traces)
        return run_on(self._how.on, query, self._app.settings.schema)

    def _run(self, started: Started) -> FlowRun:
        return Run(self._app, started.run, created=started.created)

    @property
    def blocking(self) -> BlockingFlow:
        """The same for code that does not await: `flow.blocking.start(…).result()`."""
        return BlockingFlow(self)

    def __repr__(self) -> str:
        return f"<Flow {self.name}>"


class BlockingFlow:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def using(self, **how: Any) -> BlockingFlow:
        """As `flow.using(…)`."""
        return BlockingFlow(self._flow.using(**how))

    def start(self, /, **input: Any) -> BlockingRun[dict[str, Any]]:
        flow, app = self._flow, self._flow._app
        if flow._how.on is not None:
            if is_async(flow._how.on):
                raise ArgumentError(
                    "a blocking start cannot use an async connection: await flow.using(on=…).start(…)"
                )
            with flow._traced() as span:
                answer = flow._on(flow.call(**input), span.trace)
                assert not isinstance(answer, Awaitable)
                span.tell(tracing.started(answer[0]))
            return BlockingRun(app, flow._run(answer[0]))
        return BlockingRun(app, app.portal.run(flow.start(**input)))


def _columns(plan: Plan) -> Columns:
    """What all runs of a flow have in common, written once."""
    found: Columns | None = plan.__dict__.get("columns")
    if found is None:
        numbers = plan.numbers
        found = plan.__dict__["columns"] = Columns(
            tasks=inside(node.task.name for node in plan.nodes),
            queues=inside(node.task.policy.queue for node in plan.nodes),
            lanes=",".join(str(node.task.policy.priority) for node in plan.nodes),
            args="",
            options=",".join(["NULL"] * len(plan.nodes)),
            rules=",".join(node.when for node in plan.nodes),
            parents=",".join(str(len(plan.graph.parents[node.name])) for node in plan.nodes),
            children=inside(
                f"{{{','.join(map(str, plan.children(node.name)))}}}" for node in plan.nodes
            ),
            takes=inside(_takes(plan, node, numbers) for node in plan.nodes),
        )
    return found


def _takes(plan: Plan, node: Node, numbers: dict[str, int]) -> str | None:
    taken = plan.taken(node)
    if not taken:
        return None
    return "{" + ",".join(f'"{word}":{numbers[word]}' for word in taken) + "}"
