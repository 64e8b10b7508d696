"""MODULE:APP → the app, MODULE:API → the API, or one line that says what is wrong with the name.

The current directory can be imported from, as with `python -m`. An error inside the module is the
module's own and keeps its traceback, from where the module begins.
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

from rota.cli.endings import MISTAKE, Told

if TYPE_CHECKING:
    from rota import Rota


def load(name: str) -> Rota:
    from rota import Rota

    found, module = _find(name, "app")
    if not isinstance(found, Rota):
        kind = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise Told(f"{name} is {kind}, not a Rota app; {_apps(module)}", MISTAKE)
    return found


def load_api(name: str) -> tuple[Any, list[str]]:
    """The API, and the names of the Rota apps its module knows."""
    from rota import Rota

    found, module = _find(name, "api")
    if isinstance(found, Rota):
        raise Told(
            f"{name} is a Rota app, not an API: name your FastAPI or Starlette application, made with "
            "lifespan=app.lifespan",
            MISTAKE,
        )
    if not callable(found):
        raise Told(f"{name} is a {type(found).__name__}, not an ASGI application", MISTAKE)
    apps: dict[int, str] = {}
    for word, value in vars(module).items():
        if isinstance(value, Rota):
            apps.setdefault(id(value), f"{module.__name__}:{word}")
    return found, list(apps.values())


def check(name: str) -> None:
    """Refuse what names no app, or a module that is not there. Nothing is imported: what is wrong inside
    the module is for whoever imports it."""
    top = _split(name, "app")[0].partition(".")[0]
    with suppress(ValueError):  # a module that is there, without a specification
        if find_spec(top) is None and PathFinder.find_spec(top, [os.getcwd()]) is None:
            raise _absent(top)


def _find(name: str, what: str) -> tuple[Any, ModuleType]:
    module_name, attribute = _split(name, what)
    module = _import(module_name)
    found: Any = module
    for word in attribute.split("."):
        if not hasattr(found, word):
            there = f"; {_apps(module)}" if what == "app" else ""
            raise Told(f"module {module_name!r} has no {attribute!r}{there}", MISTAKE)
        found = getattr(found, word)
    return found, module


def _split(name: str, what: str) -> tuple[str, str]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Told(
            f"{name!r} does not name an {what}: write MODULE:{what.upper()}, such as "
            f"{_module_of(module_name) or 'hello'}:{what}",
            MISTAKE,
        )
    if "/" in module_name or module_name.endswith(".py"):
        raise Told(
            f"{module_name!r} is a file; name its module: {_module_of(module_name)}:{attribute}",
            MISTAKE,
        )
    return module_name, attribute


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Another name: the module is there, and something it needs is not.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            _show_from_the_module_on(error)
            raise
        raise _absent(error.name) from None
    except Exception as error:
        _show_from_the_module_on(error)
        raise


def _absent(module: str) -> Told:
    return Told(
        f"there is no module {module!r} in {os.getcwd()} or among the installed packages; "
        "call rota where it lies, or set PYTHONPATH",
        MISTAKE,
    )


def _show_from_the_module_on(error: BaseException) -> None:
    """Should it end the program: of the way to it, what lies before the module is of no use to anybody."""
    usual = sys.excepthook

    def show(kind: type[BaseException], ended: BaseException, trace: TracebackType | None) -> None:
        if ended is error:
            importing = False
            while trace is not None:
                frozen = trace.tb_frame.f_code.co_filename.startswith("<frozen importlib")
                if importing and not frozen:
                    break
                importing = frozen
                trace = trace.tb_next
            ended.__traceback__ = trace  # what is shown is what it has, not what is passed on
        usual(kind, ended, trace)

    sys.excepthook = show


def _apps(module: ModuleType) -> str:
    from rota import Rota

    names = [word for word, value in vars(module).items() if isinstance(value, Rota)]
    if not names:
        return f"make one there with {module.__name__.rpartition('.')[2]}.app = Rota(…)"
    return f"there is {', '.join(f'{module.__name__}:{name}' for name in names)}"


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
