"""Task definitions: a callable with its name, its policy, and the types of its arguments and result."""

from __future__ import annotations

import inspect
import math
import re
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, TypedDict, get_args

import msgspec

from rota.errors import ArgumentError, DefinitionError, ResultError, WorkerLost
from rota.model import codec
from rota.model.context import Context
from rota.model.retry import Retry
from rota.model.settings import Duration, to_seconds

_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,199}")
_KINDS = inspect.Parameter
_EMPTY = inspect.Parameter.empty


WorkerLostAction = Literal["retry", "fail", "cancel"]
"""Action for a job whose worker was lost."""


@dataclass(frozen=True, slots=True)
class LostJob:
    """Job whose worker was lost while it ran; the argument of a task's `on_worker_lost`."""

    job_id: int
    run_id: int
    task: str
    attempt: int
    """Number of the lost attempt."""
    crashes: int
    """Number of workers that died because of the job, as far as known. 0 if other jobs were running when it
    was lost."""


OnWorkerLost = (
    WorkerLostAction | Callable[[LostJob], WorkerLostAction | Awaitable[WorkerLostAction]]
)

Isolation = Literal["process"] | None


class ActionOptions(TypedDict, total=False):
    """Options of the handler of a scheduled action."""

    queue: str
    priority: int
    retry: Retry | None
    timeout: Duration | None


class TaskOptions(ActionOptions, total=False):
    """Options of a task."""

    on_worker_lost: OnWorkerLost
    max_crashes: int
    visibility_timeout: Duration | None
    isolation: Isolation


@dataclass(frozen=True, slots=True)
class TaskPolicy:
    """Default rules for queueing and running the jobs of a task. A start may override some of them."""

    queue: str = "default"
    priority: int = 0
    retry: Retry = field(default_factory=Retry)
    timeout: float | None = None
    on_worker_lost: OnWorkerLost = "retry"
    max_crashes: int = 3
    """Number of consecutive workers that may be lost with a job before it is quarantined."""
    visibility_timeout: float | None = None
    """Seconds for which a worker may hold a job, even if the worker is alive."""
    isolation: Isolation = None
    """"process" to run the code in a separate process; None to run it in the worker."""

    @classmethod
    def from_options(cls, options: TaskOptions) -> TaskPolicy:
        """Return the policy for the options of a decorator."""
        values: dict[str, Any] = {**options}
        for name in ("timeout", "visibility_timeout"):
            if values.get(name) is not None:
                values[name] = to_seconds(values[name])
        values["retry"] = options.get("retry") or Retry()
        return cls(**values)

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        check_priority(self.priority)
        if self.timeout is not None and not self.timeout > 0:
            raise DefinitionError(f"timeout must be above 0 seconds, not {self.timeout:g}")
        if not callable(self.on_worker_lost) and self.on_worker_lost not in get_args(
            WorkerLostAction
        ):
            raise DefinitionError(
                'on_worker_lost is "retry", "fail", "cancel" or a function that answers one of them, '
                f"not {self.on_worker_lost!r}"
            )
        if type(self.max_crashes) is not int or self.max_crashes < 1:
            raise DefinitionError(
                f"max_crashes is a whole number, at least 1, not {self.max_crashes!r}"
            )
        if self.visibility_timeout is not None:
            _check_visibility_timeout(self.visibility_timeout, self.timeout)
        if self.isolation not in (None, "process"):
            raise DefinitionError(
                f'isolation is "process", or None for in the worker itself, not {self.isolation!r}'
            )

    @property
    def prefetchable(self) -> bool:
        """True if a worker may claim jobs of this task before a slot is free.

        If its worker is lost, a job that has not started simply runs elsewhere. That holds only if losing a
        worker requires no decision and the job has no visibility timeout.
        """
        return (
            self.retry.max_attempts > 1
            and self.on_worker_lost == "retry"
            and not issubclass(WorkerLost, self.retry.non_retryable)
            and self.visibility_timeout is None
            and self.isolation is None
        )


POLICY_DEFAULTS = {each.name: each.default for each in fields(TaskPolicy) if each.name != "retry"}


class TaskDefinition:
    """Definition of a task, independent of an app."""

    def __init__(
        self, fn: Callable[..., Any], name: str, policy: TaskPolicy, *, runs_user_code: bool = True
    ) -> None:
        self.fn = fn
        self.name = check_name("task", name)
        self.policy = policy
        self.runs_user_code = runs_user_code
        """False for a node of a flow that waits without user code: it cannot cause a worker's death."""
        self.is_async = inspect.iscoroutinefunction(fn)
        self.takes_context = False
        self.skip_if: TaskDefinition | None = None
        """For a task of a flow: the condition under which it is skipped."""
        if policy.isolation == "process":
            _check_importable(fn, name)
        self._parameters: dict[str, inspect.Parameter] = {}
        for index, (parameter_name, parameter) in enumerate(
            inspect.signature(fn).parameters.items()
        ):
            if parameter.kind in (_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD):
                raise DefinitionError(
                    f"task {name!r} takes *{parameter_name}; arguments are stored by name, so give each a "
                    "parameter of its own (one of type dict or list will do)"
                )
            if parameter.kind is _KINDS.POSITIONAL_ONLY:
                raise DefinitionError(
                    f"task {name!r} takes {parameter_name!r} by position only; arguments are stored by "
                    "name, so drop the /"
                )
            if index == 0 and _is_context(fn, parameter_name, parameter):
                self.takes_context = True
            else:
                self._parameters[parameter_name] = parameter
        # Keyword-only parameters cannot be given by position.
        self._positional = tuple(
            parameter_name
            for parameter_name, each in self._parameters.items()
            if each.kind is not _KINDS.KEYWORD_ONLY
        )

    # Type hints are read on first use, because they may name objects that are defined later in the module.

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.fn, include_extras=True)
        except NameError as error:
            raise DefinitionError(
                f"task {self.name!r}: {error}; its type hints must name things that exist at run time"
            ) from error

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Parameters without the context."""
        return self._parameters

    def hint(self, name: str) -> Any:
        return self._hints.get(name, Any)

    @property
    def returns(self) -> Any:
        return self._hints.get("return", Any)

    @cached_property
    def arguments_decoder(self) -> msgspec.json.Decoder[dict[str, Any]]:
        """Decoder of a job's arguments."""
        return self.decoder_for(
            {
                name: (self.hint(name), parameter.default is _EMPTY)
                for name, parameter in self._parameters.items()
            },
            "an argument",
        )

    def decoder_for(
        self, parameters: Mapping[str, tuple[Any, bool]], subject: str
    ) -> msgspec.json.Decoder[dict[str, Any]]:
        """Return a decoder for an object with these keys: the type of each, and True if it is required."""
        fields = {
            name: kind if required else typing.NotRequired[kind]
            for name, (kind, required) in parameters.items()
        }
        return self._decoder(typing.TypedDict(f"{self.name} arguments", fields), subject)  # type: ignore[operator]

    @cached_property
    def result_decoder(self) -> msgspec.json.Decoder[Any]:
        """Decoder of a stored result, of the declared return type."""
        return self._decoder(self.returns, "its result")

    def _decoder(self, kind: Any, subject: str) -> msgspec.json.Decoder[Any]:
        try:
            return codec.decoder(kind)
        except TypeError as error:
            raise DefinitionError(
                f"task {self.name!r} has a type for {subject} that cannot come out of JSON: {error}"
            ) from None

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
        """Return the arguments as JSON. They are checked here as a worker will read them, so a worker never
        refuses them."""
        if args:
            kwargs = self._bind_positional(args, kwargs)
        if not kwargs.keys() <= self._parameters.keys():
            unknown = next(each for each in kwargs if each not in self._parameters)
            raise ArgumentError(
                f"task {self.name!r} takes no argument {unknown!r}; it takes "
                f"{', '.join(self._parameters) or 'none'}"
            )
        text = codec.encode(kwargs, f"the arguments of task {self.name!r}", limit)
        try:
            self.arguments_decoder.decode(text)
        except (msgspec.ValidationError, ValueError) as error:
            raise ArgumentError(
                f"the arguments do not fit task {self.name!r}: {codec.describe(error)}"
            ) from None
        except NotImplementedError as error:
            raise DefinitionError(
                f"task {self.name!r} has a type for an argument that cannot come out of JSON: {error}"
            ) from None
        return text

    def _bind_positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            raise ArgumentError(
                f"task {self.name!r} takes {len(self._positional)} arguments by position, "
                f"{len(args)} were given"
            )
        by_name = dict(zip(self._positional, args, strict=False))
        duplicates = by_name.keys() & kwargs.keys()
        if duplicates:
            raise ArgumentError(f"task {self.name!r} was given {sorted(duplicates)[0]!r} twice")
        return by_name | kwargs

    def read_result(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return self.result_decoder.decode(data)
        except (msgspec.ValidationError, ValueError) as error:
            raise ResultError(
                f"the stored result of task {self.name!r} does not match its return type: "
                f"{codec.describe(error)}"
            ) from None


def check_name(kind: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} cannot be a {kind}'s name: letters, digits and _ . : / - only, at most 200"
        )
    return name


def check_priority(priority: int) -> int:
    if type(priority) is not int or not 0 <= priority <= 9:
        raise DefinitionError(f"priority is from 0 to 9, larger sooner, not {priority!r}")
    return priority


def _check_visibility_timeout(visibility_timeout: float, timeout: float | None) -> None:
    if not (visibility_timeout > 0 and math.isfinite(visibility_timeout)):
        raise DefinitionError(
            f"visibility_timeout must be above 0 seconds, not {visibility_timeout:g}"
        )
    if timeout is not None and visibility_timeout < timeout:
        raise DefinitionError(
            f"visibility_timeout={visibility_timeout:g} is shorter than timeout={timeout:g}: another "
            "worker could take the job before it times out; make visibility_timeout longer"
        )


def _check_importable(fn: Callable[..., Any], name: str) -> None:
    """Raise DefinitionError unless the process of an isolated task can import the function."""
    qualname = getattr(fn, "__qualname__", None)
    if qualname is None or "<" in qualname or getattr(fn, "__module__", None) is None:
        raise DefinitionError(
            f'task {name!r} has isolation="process": that process finds the function by its name in its '
            f"module, and {qualname or repr(fn)} cannot be found so; write it with def at the top of a "
            "module"
        )


def _is_context(fn: Callable[..., Any], name: str, parameter: inspect.Parameter) -> bool:
    hint: object = parameter.annotation
    if hint is _EMPTY:
        return name == "ctx"
    if not isinstance(hint, str):
        return hint is Context
    try:
        return typing.get_type_hints(_with_one_hint(fn, name))[name] is Context
    except Exception:
        # The hint names an object that does not exist at run time, or not yet.
        return hint.split(".")[-1] == "Context"


def _with_one_hint(fn: Callable[..., Any], name: str) -> Any:
    """Return a stand-in with this one hint and the function's globals: other hints may not be resolvable
    yet."""
    stand_in = types.FunctionType((lambda: None).__code__, getattr(fn, "__globals__", {}))
    stand_in.__annotations__ = {name: fn.__annotations__[name]}
    return stand_in
