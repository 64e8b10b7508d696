"""Where another process finds a task's function: as an import would, by module and name.

What stands under that name may be the function, the task made of it, or what decorators made of that:
each says by `__wrapped__` what it stands for, so the way to the function is a number of steps.
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

from rota.engine.frames import Address
from rota.errors import DefinitionError
from rota.model.task import Definition

MAIN = "__main__"
NOT_MAIN = "__rota_main__"
"""What the program's own script is called elsewhere, so that it only defines and does not run."""

DEEPEST = 50

reading: list[str] = []
"""The script that is being read for what it defines. Whatever it runs meanwhile, it should not."""


def address_of(task: Definition) -> Address:
    """Where another process finds this task."""
    fn: Any = task.fn
    found: Any = sys.modules.get(fn.__module__)
    for part in fn.__qualname__.split("."):
        found = getattr(found, part, None)
    for depth in range(DEEPEST):
        if found is fn:
            main, is_module = _main(task) if fn.__module__ == MAIN else (None, False)
            return Address(fn.__module__, fn.__qualname__, depth, main, is_module)
        found = getattr(found, "__wrapped__", None)
    raise DefinitionError(
        f'task {task.name!r} has isolation="process", and its process would look for the function as '
        f"{fn.__qualname__} in {fn.__module__}, where it is not; let that name be the task, or the function"
    )


def _main(task: Definition) -> tuple[str, bool]:
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


def find(address: Address) -> Callable[..., Any]:
    """The function at this address, its module imported."""
    module = _module(address)
    found: Any = module
    for part in address.name.split("."):
        found = getattr(found, part)
    for _ in range(address.depth):
        found = found.__wrapped__
    fn: Callable[..., Any] = found
    return fn


def _module(address: Address) -> ModuleType:
    if address.module != MAIN:
        return importlib.import_module(address.module)
    known = sys.modules.get(NOT_MAIN)
    if known is not None:
        return known
    assert address.main is not None
    module = ModuleType(NOT_MAIN)
    code = _code(address.main, address.is_module, module)
    before = sys.modules[MAIN]
    sys.modules[NOT_MAIN] = sys.modules[MAIN] = module
    reading.append(address.main)
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[NOT_MAIN]
        sys.modules[MAIN] = before
        raise
    finally:
        reading.clear()
    for each in vars(module).values():
        if isinstance(each, type) and each.__module__ == NOT_MAIN:
            each.__module__ = MAIN  # an error is called the same wherever it was raised
    return module


def _code(main: str, is_module: bool, module: ModuleType) -> CodeType:
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


def name_of(kind: type) -> str:
    """A type's name, the same in both processes."""
    module = MAIN if kind.__module__ == NOT_MAIN else kind.__module__
    return f"{module}:{kind.__qualname__}"
