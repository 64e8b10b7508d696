"""Keyword options that are declared once, as a TypedDict, and that several functions take.

A function takes them as `**options: Unpack[TaskOptions]`, so a type checker reports a wrong option at the
call. At run time `check_options` reports it. `show_options` lists the options in the function's signature,
which `help()`, editors and the reference read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rota.model.text import closest_name

F = TypeVar("F", bound=Callable[..., Any])


def check_options(function: Callable[..., Any], options: Mapping[str, Any], declared: type) -> None:
    """Raise TypeError for an option that is not declared; the message suggests a similar parameter."""
    if options.keys() <= declared.__annotations__.keys():
        return
    unknown = next(name for name in options if name not in declared.__annotations__)
    names = list(declared.__annotations__)
    names += [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind is not each.VAR_KEYWORD and each.name not in ("self", "fn", *names)
    ]
    closest = closest_name(unknown, names)
    hint = f"did you mean {closest!r}?" if closest else f"it takes {', '.join(names)}"
    raise TypeError(f"{function.__qualname__}() takes no option {unknown!r}; {hint}")


def show_options(declared: type, defaults: Mapping[str, Any]) -> Callable[[F], F]:
    """Replace `**options` in the signature of a function by the declared options.

    An option without an entry in `defaults` is shown with the default None.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *named, _ = signature.parameters.values()
        shown = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                # A forward reference, because the declaring module postpones its annotations.
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in declared.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=[*named, *shown])  # type: ignore[attr-defined]
        return function

    return decorate
