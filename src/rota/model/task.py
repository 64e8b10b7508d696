"""A task: a callable, its name, its policy, and the types of what goes in and comes out."""

from __future__ import annotations

import inspect
import math
import re
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import msgspec

from rota.errors import ArgumentError, DefinitionError, ResultError, WorkerLost
from rota.model import codec
from rota.model.context import Context
from rota.model.retry import Retry
from rota.model.settings import Duration, seconds

_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,199}")
_KINDS = inspect.Parameter
_EMPTY = inspect.Parameter.empty


Fate = Literal["revive", "fail", "cancel"]
"""What becomes of a job whose worker was lost."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A job whose worker was lost while it ran, as a task's `on_dead` is told."""

    job_id: int
    run_id: int
    task: str
    attempt: int
    """The one that was lost."""
    crashes: int
    """How many workers died of it, as far as one can tell: 0 if others were there when it was lost."""


OnDead = Fate | Callable[[Loss], Fate | Awaitable[Fate]]

Isolation = Literal["process"] | None


@dataclass(frozen=True, slots=True)
class Policy:
    """How a task's jobs are queued and run unless a start says otherwise."""

    queue: str = "default"
    priority: int = 0
    retry: Retry = field(default_factory=Retry)
    timeout: float | None = None
    on_dead: OnDead = "revive"
    crashes: int = 3
    """So many workers in a row may be lost with a job before it is put aside."""
    hold: float | None = None
    """Seconds a worker may hold a job, be it alive or not."""
    isolation: Isolation = None
    """Where the code runs: in the worker itself, or in a process of its own."""

    @classmethod
    def of(
        cls,
        *,
        queue: str,
        priority: int,
        retry: Retry | None,
        timeout: Duration | None,
        on_dead: OnDead,
        crashes: int,
        hold: Duration | None,
        isolation: Isolation,
    ) -> Policy:
        """What a task was registered with."""
        return cls(
            queue,
            priority,
            retry or Retry(),
            None if timeout is None else seconds(timeout),
            on_dead,
            crashes,
            None if hold is None else seconds(hold),
            isolation,
        )

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        check_priority(self.priority)
        if self.timeout is not None and not self.timeout > 0:
            raise DefinitionError(f"timeout must be above 0 seconds, not {self.timeout:g}")
        if not callable(self.on_dead) and self.on_dead not in get_args(Fate):
            raise DefinitionError(
                'on_dead is "revive", "fail", "cancel" or a function that answers one of them, '
                f"not {self.on_dead!r}"
            )
        if type(self.crashes) is not int or self.crashes < 1:
            raise DefinitionError(f"crashes is a whole number, at least 1, not {self.crashes!r}")
        if self.hold is not None:
            if not (self.hold > 0 and math.isfinite(self.hold)):
                raise DefinitionError(f"hold must be above 0 seconds, not {self.hold:g}")
            if self.timeout is not None and self.hold < self.timeout:
                raise DefinitionError(
                    f"hold={self.hold:g} is shorter than timeout={self.timeout:g}: the job would be "
                    "somebody else's before its time is up; make hold the longer one"
                )
        if self.isolation not in (None, "process"):
            raise DefinitionError(
                f'isolation is "process", or None for in the worker itself, not {self.isolation!r}'
            )

    @property
    def patient(self) -> bool:
        """Whether a worker may hold its jobs ahead of their turn: a job that never began and is lost with
        its worker just runs elsewhere, and nothing else is to be decided or timed."""
        return (
            self.retry.attempts > 1
            and self.on_dead == "revive"
            and not issubclass(WorkerLost, self.retry.never)
            and self.hold is None
            and self.isolation is None
        )


class Definition:
    """What a task is, apart from any app."""

    def __init__(self, fn: Callable[..., Any], name: str, policy: Policy) -> None:
        self.fn = fn
        self.name = check_name("task", name)
        self.policy = policy
        self.is_async = inspect.iscoroutinefunction(fn)
        self.takes_context = False
        self.skip_if: Definition | None = None
        """Of a flow's task: the condition under which it is skipped."""
        if policy.isolation == "process":
            _check_findable(fn, name)
        self._parameters: dict[str, inspect.Parameter] = {}
        for index, (word, parameter) in enumerate(inspect.signature(fn).parameters.items()):
            if parameter.kind in (_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD):
                raise DefinitionError(
                    f"task {name!r} takes *{word}; arguments are stored by name, so give each a "
                    "parameter of its own (one of type dict or list will do)"
                )
            if parameter.kind is _KINDS.POSITIONAL_ONLY:
                raise DefinitionError(
                    f"task {name!r} takes {word!r} by position only; arguments are stored by name, "
                    "so drop the /"
                )
            if index == 0 and _is_context(fn, word, parameter):
                self.takes_context = True
            else:
                self._parameters[word] = parameter
        # Keyword-only parameters cannot be given by position.
        self._order = tuple(
            word for word, each in self._parameters.items() if each.kind is not _KINDS.KEYWORD_ONLY
        )

    # Hints are read on first use, not when the decorator runs: they may name what is defined further down.

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
        """What it takes, without the context."""
        return self._parameters

    def hint(self, word: str) -> Any:
        return self._hints.get(word, Any)

    @property
    def returns(self) -> Any:
        return self._hints.get("return", Any)

    @cached_property
    def arguments(self) -> msgspec.json.Decoder[dict[str, Any]]:
        """Reads a job's arguments into what the function expects."""
        return self.decoder_of(
            {
                word: (self.hint(word), parameter.default is _EMPTY)
                for word, parameter in self._parameters.items()
            },
            "an argument",
        )

    def decoder_of(
        self, words: Mapping[str, tuple[Any, bool]], what: str
    ) -> msgspec.json.Decoder[dict[str, Any]]:
        """Reads an object with these words: the type of each, and whether it must be there."""
        fields = {
            word: kind if required else typing.NotRequired[kind]
            for word, (kind, required) in words.items()
        }
        return self._decoder(typing.TypedDict(f"{self.name} arguments", fields), what)  # type: ignore[operator]

    @cached_property
    def result(self) -> msgspec.json.Decoder[Any]:
        """Reads a stored result into what the function declares to return."""
        return self._decoder(self.returns, "its result")

    def _decoder(self, kind: Any, what: str) -> msgspec.json.Decoder[Any]:
        try:
            return codec.decoder(kind)
        except TypeError as error:
            raise DefinitionError(
                f"task {self.name!r} has a type for {what} that cannot come out of JSON: {error}"
            ) from None

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
        """Arguments as JSON, checked as the worker will read them; refused here, never there."""
        if args:
            kwargs = self._by_name(args, kwargs)
        if not kwargs.keys() <= self._parameters.keys():
            word = next(each for each in kwargs if each not in self._parameters)
            raise ArgumentError(
                f"task {self.name!r} takes no argument {word!r}; it takes "
                f"{', '.join(self._parameters) or 'none'}"
            )
        text = codec.encode(kwargs, f"the arguments of task {self.name!r}", limit)
        try:
            self.arguments.decode(text)
        except msgspec.ValidationError as error:
            raise ArgumentError(
                f"the arguments do not fit task {self.name!r}: {codec.describe(error)}"
            ) from None
        except NotImplementedError as error:
            raise DefinitionError(
                f"task {self.name!r} has a type for an argument that cannot come out of JSON: {error}"
            ) from None
        except ValueError as error:  # pydantic's, which names the field itself
            raise ArgumentError(f"the arguments do not fit task {self.name!r}: {error}") from None
        return text

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._order):
            raise ArgumentError(
                f"task {self.name!r} takes {len(self._order)} arguments by position, "
                f"{len(args)} were given"
            )
        named = dict(zip(self._order, args, strict=False))
        twice = named.keys() & kwargs.keys()
        if twice:
            raise ArgumentError(f"task {self.name!r} was given {sorted(twice)[0]!r} twice")
        return named | kwargs

    def read_result(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return self.result.decode(data)
        except (msgspec.ValidationError, ValueError) as error:
            reason = codec.describe(error) if isinstance(error, msgspec.ValidationError) else error
            raise ResultError(
                f"the stored result of task {self.name!r} is not what it declares to return: {reason}"
            ) from None


def check_name(what: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} cannot be a {what}'s name: letters, digits and _ . : / - only, at most 200"
        )
    return name


def check_priority(priority: int) -> int:
    if type(priority) is not int or not 0 <= priority <= 9:
        raise DefinitionError(f"priority is from 0 to 9, larger sooner, not {priority!r}")
    return priority


def _check_findable(fn: Callable[..., Any], name: str) -> None:
    """The process a task runs in looks for it as an import would."""
    qualified = getattr(fn, "__qualname__", None)
    if qualified is None or "<" in qualified or getattr(fn, "__module__", None) is None:
        raise DefinitionError(
            f'task {name!r} has isolation="process": that process finds the function by its name in its '
            f"module, and {qualified or repr(fn)} cannot be found so; write it with def at the top of a "
            "module"
        )


def _is_context(fn: Callable[..., Any], word: str, parameter: inspect.Parameter) -> bool:
    hint: object = parameter.annotation
    if hint is _EMPTY:
        return word == "ctx"
    if not isinstance(hint, str):
        return hint is Context
    try:
        return typing.get_type_hints(_only(fn, word))[word] is Context
    except Exception:
        # It names something that does not exist at run time, or not yet.
        return hint.split(".")[-1] == "Context"


def _only(fn: Callable[..., Any], word: str) -> Any:
    """Something with the one hint, in the function's own world: its other hints may not be there yet."""
    stand_in = types.FunctionType((lambda: None).__code__, getattr(fn, "__globals__", {}))
    stand_in.__annotations__ = {word: fn.__annotations__[word]}
    return stand_in
