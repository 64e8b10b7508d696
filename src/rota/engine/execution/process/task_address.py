"""Address of a task's function, by which a child process imports it: module and name.

The object of that name may be the function, its task, or a decorator's wrapper around either. Each has the
inner object as `__wrapped__`, so the address includes how many times to unwrap.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from rota.engine.execution.process.messages import TaskAddress
from rota.errors import DefinitionError
from rota.model.task import TaskDefinition

MAIN = "__main__"
IMPORTED_MAIN = "__rota_main__"
"""`__name__` of the main script in a child process: its `if __name__ == "__main__"` block does not run."""

MAX_WRAPPERS = 50

scripts_being_loaded: list[str] = []
"""Main script that a child process is importing, at most one. It must not start a worker meanwhile."""


def import_path_of(task: TaskDefinition) -> TaskAddress:
    """Return the address of a task. Raise DefinitionError if another process could not import it."""
    fn: Any = task.fn
    found: Any = sys.modules.get(fn.__module__)
    for part in fn.__qualname__.split("."):
        found = getattr(found, part, None)
    for depth in range(MAX_WRAPPERS):
        if found is fn:
            main, is_module = _main_location(task) if fn.__module__ == MAIN else (None, False)
            return TaskAddress(fn.__module__, fn.__qualname__, depth, main, is_module)
        found = getattr(found, "__wrapped__", None)
    raise DefinitionError(
        f'task {task.name!r} has isolation="process", and its process would look for the function as '
        f"{fn.__qualname__} in {fn.__module__}, where it is not; let that name be the task, or the function"
    )


def _main_location(task: TaskDefinition) -> tuple[str, bool]:
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != MAIN:
        return spec.name, True
    file = getattr(main, "__file__", None)
    if file is None or not os.path.isfile(file):
        raise DefinitionError(
            f'task {task.name!r} has isolation="process" and is defined where no other process can read '
            "it; put it into a module"
        )
    return os.path.abspath(file), False


def load_function(address: TaskAddress) -> Callable[..., Any]:
    """Import the module of an address and return the function."""
    module = _import_module(address)
    found: Any = module
    for part in address.name.split("."):
        found = getattr(found, part)
    for _ in range(address.depth):
        found = found.__wrapped__
    fn: Callable[..., Any] = found
    return fn


def _import_module(address: TaskAddress) -> ModuleType:
    if address.module != MAIN:
        return importlib.import_module(address.module)
    loaded = sys.modules.get(IMPORTED_MAIN)
    if loaded is not None:
        return loaded
    assert address.main is not None
    module = ModuleType(IMPORTED_MAIN)
    code = _compile_main(address.main, address.is_module, module)
    previous = sys.modules[MAIN]
    sys.modules[IMPORTED_MAIN] = sys.modules[MAIN] = module
    scripts_being_loaded.append(address.main)
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[IMPORTED_MAIN]
        sys.modules[MAIN] = previous
        raise
    finally:
        scripts_being_loaded.clear()
    for each in vars(module).values():
        if isinstance(each, type) and each.__module__ == IMPORTED_MAIN:
            each.__module__ = MAIN  # an error type has the same name in the worker and the child
    return module


def _compile_main(main: str, is_module: bool, module: ModuleType) -> CodeType:
    if is_module:
        spec = importlib.util.find_spec(main)
        if spec is None or spec.loader is None:
            raise ImportError(f"there is no module {main}")
        module.__package__ = spec.parent
        module.__file__ = spec.origin
        code = spec.loader.get_code(main)  # type: ignore[attr-defined]
    else:
        module.__file__ = main
        code = compile(Path(main).read_bytes(), main, "exec")
    if not isinstance(code, CodeType):
        raise ImportError(f"{main} has no source")
    return code


def type_name(kind: type) -> str:
    """Return a type's name, the same in the worker and in child processes."""
    module = MAIN if kind.__module__ == IMPORTED_MAIN else kind.__module__
    return f"{module}:{kind.__qualname__}"
