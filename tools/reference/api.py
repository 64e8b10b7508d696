"""Public names that users import: signatures as written, and docstrings."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import rota
import rota.errors

from .prose import made, said, table

WIDE = 92


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    words: str
    of: tuple[str, ...]
    """`module:name`; a class with its methods, or a function."""


PAGES = (
    Page(
        "app",
        "Rota",
        "The app holds tasks, flows, schedules and the connection settings of one database. Guides: "
        "[tasks](../../guides/tasks.md), [workers](../../guides/workers.md).",
        ("rota:Rota", "rota.app.queues:Queues", "rota:Settings", "rota:Retry", "rota:LostJob"),
    ),
    Page(
        "runs",
        "Tasks, flows, runs",
        "Tasks and flows are started; a run is one execution of them. Guides: "
        "[tasks](../../guides/tasks.md), [flows](../../guides/flows.md).",
        (
            "rota:Task",
            "rota.app.task:SyncTask",
            "rota:BoundTask",
            "rota:Run",
            "rota.app.sync:SyncRun",
            "rota.model.explanation:Explanation",
            "rota.model.explanation:ExplanationReason",
            "rota:Flow",
            "rota:FlowTask",
            "rota:BoundFlow",
        ),
    ),
    Page(
        "context",
        "Context",
        "A task that declares `ctx: Context` as its first parameter receives the context of its job. "
        "Guides: [durable functions](../../guides/durable.md), [workers](../../guides/workers.md).",
        (
            "rota:Context",
            "rota.model.context:SyncContext",
            "rota:Failure",
            "rota:ServiceContext",
        ),
    ),
    Page(
        "coordination",
        "Locks, leaders, rate limits",
        "Coordination between the instances of an app. Guides: [locks](../../guides/locks.md), "
        "[leaders](../../guides/leaders.md), [once and rate limits](../../guides/once-and-limits.md).",
        (
            "rota.app.locks:Lock",
            "rota.app.locks:Permit",
            "rota.app.locks:SyncLock",
            "rota.coord.leader:Leader",
            "rota.coord.leader:Term",
            "rota.app.locks:RateLimit",
            "rota.app.locks:SyncRateLimit",
            "rota:Inserted",
            "rota.app.once:SyncRota",
        ),
    ),
    Page(
        "schedules",
        "Schedules",
        "Schedule operations at run time: `app.schedules`. Guide: [schedules](../../guides/schedules.md).",
        (
            "rota.app.schedules:Schedules",
            "rota.app.schedules:SyncSchedules",
            "rota:Schedule",
            "rota:Tick",
        ),
    ),
    Page(
        "web",
        "In a web process",
        "Parts for a web application: pages to mount, lifespans, middleware and dependencies. Guides: "
        "[in a web application](../../guides/web.md), [access](../../guides/access.md), "
        "[logs](../../guides/logs.md).",
        (
            "rota.web.site:site",
            "rota.web.health:health",
            "rota.app.lifespan:Lifespan",
            "rota.asgi:Drain",
            "rota.contrib.fastapi:Runs",
            "rota.contrib.fastapi:SyncRuns",
            "rota.contrib.fastapi:runs_in",
            "rota.model.access:Caller",
            "rota.model.access:Role",
            "rota.logs:to_stderr",
            "rota.logs:JsonFormatter",
            "rota.logs:TextFormatter",
            "rota.logs:JobFilter",
            "rota.logs:current_fields",
        ),
    ),
    Page(
        "testing",
        "Testing",
        "Names in `rota.testing`. The fixtures, and examples: [testing](../../guides/testing.md).",
        tuple(
            f"rota.testing:{name}"
            for name in (
                "simulate",
                "crash_everywhere",
                "SimulatedResult",
                "Harness",
                "SettableClock",
                "EventRecorder",
                "run_until_idle",
                "until_idle",
                "Proxy",
                "NotIdle",
                "EventNotSeen",
                "NotThrowaway",
            )
        ),
    ),
)

# Used by the engine only, although their names have no underscore.
INTERNAL = {
    "Rota": {"open", "coordinator"},
    "Task": {"within"},
    "Flow": {"within", "plan"},
    "BoundTask": {"read", "start", "task", "name"},
    "BoundFlow": {"read", "run", "plan", "name"},
    "Context": {"cancel", "end", "end_sync", "forced_outcome"},
    "Retry": {"to_dict", "delay_after"},
    "Lock": {"permit", "kind", "run_assertion"},
    "Permit": {"permit", "kind", "run_assertion"},
    "Settings": set(),
    "Proxy": {
        "connect",
        "is_unanswered",
        "record_cut",
        "take_order",
        "wait_open",
        "is_refused",
        "cancel_cuts",
    },
    "SimulatedResult": {"difference_from"},
    "JsonFormatter": {
        "format",
        "formatMessage",
        "formatTime",
        "formatException",
        "formatStack",
        "usesTime",
    },
    "TextFormatter": {
        "format",
        "formatMessage",
        "formatTime",
        "formatException",
        "formatStack",
        "usesTime",
    },
    "JobFilter": {"filter"},
    "ExplanationReason": {"rank"},
}


def pages() -> dict[str, str]:
    found = {f"api/{page.name}.md": _page(page) for page in PAGES}
    return found | {"api/errors.md": _errors()}


def _page(page: Page) -> str:
    return made(page.title, page.words, [part for name in page.of for part in _entry(name)])


def _entry(of: str) -> Iterator[str]:
    module, name = of.split(":")
    thing = getattr(importlib.import_module(module), name)
    yield f"## {name}"
    yield f"`from {module} import {name}`" if _is_public(module) else f"In `{module}`."
    if not inspect.isclass(thing):
        call = thing if isinstance(thing, FunctionType) else type(thing).__call__
        yield _code(f"{_async(call)}{name}{_signature(call)}")
        yield said(inspect.getdoc(thing) or "")
        if call is not thing:
            yield said(inspect.getdoc(call) or "")
        return
    yield from _class(thing)


def _class(of: type[Any]) -> Iterator[str]:
    words = of.__doc__ or ""
    if words and not words.startswith(f"{of.__name__}("):
        yield said(words)
    if issubclass(of, enum.Enum):
        yield ", ".join(f"`{of.__name__}.{each.name}`" for each in of) + "."
        return
    data = _fields(of)
    if data:
        yield table(["field", "type"], data)
    elif (inside := of.__dict__.get("__init__")) and of.__name__ in ("Rota", "Drain", "Harness"):
        yield _code(f"{of.__name__}{_signature(inside).removesuffix(' -> None')}")
    for name in _members(of):
        yield from _member(of, name)


def _members(of: type[Any]) -> list[str]:
    hidden = INTERNAL.get(of.__name__, set())
    # Members of the class itself in the order of its code, then those of its base classes.
    order = {
        name: (level, place)
        for level, each in reversed(list(enumerate(of.__mro__)))
        for place, name in enumerate(vars(each))
    }
    public = [
        name
        for name in dir(of)
        if not name.startswith("_")
        and name not in hidden
        and not hasattr(Exception, name)
        and isinstance(inspect.getattr_static(of, name), FunctionType | property | classmethod)
    ]
    return sorted(public, key=order.__getitem__)


def _member(of: type[Any], name: str) -> Iterator[str]:
    found = inspect.getattr_static(of, name)
    if isinstance(found, classmethod):
        found = found.__func__
    if isinstance(found, property):
        assert found.fget is not None
        answers = found.fget.__annotations__.get("return", "")
        yield f"### {of.__name__}.{name}"
        yield _code(f"{name}: {_plain(answers)}")
        yield said(found.__doc__ or "")
        return
    yield f"### {of.__name__}.{name}()"
    yield _code(f"{_async(found)}{name}{_signature(found)}")
    yield said(inspect.getdoc(found) or "")


def _fields(of: type[Any]) -> list[list[str]]:
    """Return the fields of a data class, each with its type and its default."""
    if not (hasattr(of, "__dataclass_fields__") or hasattr(of, "__struct_fields__")):
        return []
    source = inspect.getsource(of)
    defaults = {
        each.target.id: ast.get_source_segment(source, each.value)
        for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value
    }
    rows = []
    annotations = {
        name: kind
        for each in reversed(of.__mro__)
        for name, kind in inspect.get_annotations(each).items()
    }
    for name, kind in annotations.items():
        if name.startswith("_") or not isinstance(kind, str | type):
            continue
        default = defaults.get(name)
        shown = _without_marks(_plain(kind if isinstance(kind, str) else kind.__name__))
        rows.append([f"`{name}`", f"`{shown}`" + (f" = `{default}`" if default else "")])
    return rows


def _without_marks(kind: str) -> str:
    """Return a type without its annotations for documents: `int` for `Id`."""

    class Plain(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            self.generic_visit(node)
            is_marked = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
            return node.slice.elts[0] if is_marked and isinstance(node.slice, ast.Tuple) else node

        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.Name("int") if node.id == "Id" else node

    if "Annotated[" not in kind and "Id" not in kind:
        return kind
    return ast.unparse(Plain().visit(ast.parse(kind)))


def _signature(call: Any) -> str:
    signature = inspect.signature(call)
    parameters = [
        each for each in signature.parameters.values() if each.name not in ("self", "cls")
    ]
    answers = signature.return_annotation
    end = "" if answers is inspect.Signature.empty else f" -> {_plain(answers)}"
    words, star = [], False
    for index, each in enumerate(parameters):
        if each.kind is each.KEYWORD_ONLY and not star:
            words.append("*")
        star = star or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        words.append(_parameter(each))
        after = parameters[index + 1] if index + 1 < len(parameters) else None
        if each.kind is each.POSITIONAL_ONLY and (after is None or after.kind is not each.kind):
            words.append("/")
    line = f"({', '.join(words)}){end}"
    if len(line) + 16 <= WIDE:
        return line
    return "(\n    " + ",\n    ".join(words) + f",\n){end}"


def _parameter(each: inspect.Parameter) -> str:
    stars = (
        "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    )
    kind = "" if each.annotation is each.empty else f": {_plain(each.annotation)}"
    if each.default is each.empty:
        return f"{stars}{each.name}{kind}"
    shown = repr(each.default)
    shown = "…" if " at 0x" in shown or shown.startswith("<") else shown
    shown = shown.replace("datetime.timedelta", "timedelta")
    return f"{each.name}{kind} = {shown}" if kind else f"{each.name}={shown}"


def _plain(annotation: Any) -> str:
    text = (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )
    return text.replace("typing.", "").strip("\"'")


def _async(call: Any) -> str:
    return "async def " if inspect.iscoroutinefunction(call) else "def "


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _is_public(module: str) -> bool:
    return module.startswith(
        ("rota.testing", "rota.asgi", "rota.contrib", "rota.logs", "rota.web")
    ) or (module in ("rota", "rota.model.access"))


def _errors() -> str:
    """Return the tree at the top of rota.errors, and the module of each error."""
    words = inspect.cleandoc(rota.errors.__doc__ or "")
    head, rest = words.split("\n\n", 1)
    tree, tail = rest.split("\n\n", 1)
    kinds = [
        each
        for each in vars(rota.errors).values()
        if inspect.isclass(each) and each.__module__ == "rota.errors"
    ]
    rows = [
        [
            f"`{each.__name__}`",
            "`rota`" if each.__name__ in rota.__all__ else "`rota.errors`",
            "" if each.__doc__ is None else said(each.__doc__.split("\n\n")[0]),
        ]
        for each in kinds
    ]
    note = " The remedy for each: [troubleshooting](../../troubleshooting.md)."
    return made(
        "Errors",
        head + note,
        [
            f"```text\n{inspect.cleandoc(chr(10) + tree)}\n```",
            said(tail),
            table(["error", "import from", ""], rows),
        ],
    )
