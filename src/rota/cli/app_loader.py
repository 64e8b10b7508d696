"""Loading of MODULE:APP and MODULE:API, with one-line errors for wrong names.

Modules in the current directory can be imported, as with `python -m`. An error inside the module keeps
its traceback, starting at the module.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from rota.cli.exit_codes import USAGE_ERROR, CommandError

if TYPE_CHECKING:
    from rota import Rota


def load_app(name: str) -> Rota:
    from rota import Rota

    found, module = _find(name, "app")
    if not isinstance(found, Rota):
        kind = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise CommandError(f"{name} is {kind}, not a Rota app; {_app_hint(module)}", USAGE_ERROR)
    return found


def load_api(name: str) -> tuple[Any, list[str]]:
    """Return the API and the names of the Rota apps in its module."""
    from rota import Rota

    found, module = _find(name, "api")
    if isinstance(found, Rota):
        raise CommandError(
            f"{name} is a Rota app, not an API: name your FastAPI or Starlette application, made with "
            "lifespan=app.lifespan",
            USAGE_ERROR,
        )
    if not callable(found):
        raise CommandError(
            f"{name} is a {type(found).__name__}, not an ASGI application", USAGE_ERROR
        )
    apps: dict[int, str] = {}
    for attribute, value in vars(module).items():
        if isinstance(value, Rota):
            apps.setdefault(id(value), f"{module.__name__}:{attribute}")
    return found, list(apps.values())


def check_app_name(name: str) -> None:
    """Raise CommandError if the name is malformed or its top-level module does not exist.

    Nothing is imported: errors inside the module appear when it is imported.
    """
    top = _split(name, "app")[0].partition(".")[0]
    with suppress(ValueError):  # the module is loaded but has no spec
        if find_spec(top) is None and PathFinder.find_spec(top, [os.getcwd()]) is None:
            raise _module_not_found(top)


def _find(name: str, kind: str) -> tuple[Any, ModuleType]:
    module_name, attribute = _split(name, kind)
    module = _import(module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            hint = f"; {_app_hint(module)}" if kind == "app" else ""
            raise CommandError(f"module {module_name!r} has no {attribute!r}{hint}", USAGE_ERROR)
        found = getattr(found, part)
    return found, module


def _split(name: str, kind: str) -> tuple[str, str]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise CommandError(
            f"{name!r} does not name an {kind}: write MODULE:{kind.upper()}, such as "
            f"{_module_name(module_name) or 'hello'}:{kind}",
            USAGE_ERROR,
        )
    if "/" in module_name or module_name.endswith(".py"):
        raise CommandError(
            f"{module_name!r} is a file; name its module: {_module_name(module_name)}:{attribute}",
            USAGE_ERROR,
        )
    return module_name, attribute


def _import(name: str) -> ModuleType:
    directory = os.getcwd()
    if directory not in sys.path and "" not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Another name: the module exists, but a module that it imports does not.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            _trim_traceback(error)
            raise
        raise _module_not_found(error.name) from None
    except Exception as error:
        _trim_traceback(error)
        raise


def _module_not_found(module: str) -> CommandError:
    return CommandError(
        f"there is no module {module!r} in {os.getcwd()} or among the installed packages; "
        "call rota where it lies, or set PYTHONPATH",
        USAGE_ERROR,
    )


def _trim_traceback(error: BaseException) -> None:
    """Remove the frames before the module from the traceback, in case the error ends the program."""
    previous_hook = sys.excepthook

    def hook(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
        if raised is error:
            importing = False
            while trace is not None:
                frozen = trace.tb_frame.f_code.co_filename.startswith("<frozen importlib")
                if importing and not frozen:
                    break
                importing = frozen
                trace = trace.tb_next
            raised.__traceback__ = trace  # the hook prints the exception's own traceback
        previous_hook(kind, raised, trace)

    sys.excepthook = hook


def _app_hint(module: ModuleType) -> str:
    from rota import Rota

    names = [attribute for attribute, value in vars(module).items() if isinstance(value, Rota)]
    if not names:
        return f"make one there with {module.__name__.rpartition('.')[2]}.app = Rota(…)"
    return f"there is {', '.join(f'{module.__name__}:{name}' for name in names)}"


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
