"""Commands that need an extra of the distribution, such as `pgrota[web]`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rota.cli.exit_codes import USAGE_ERROR, CommandError


@contextmanager
def require_extra(feature: str, extra: str) -> Iterator[None]:
    """Report a missing part of an extra in one line, for imports inside the block."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "rota":
            raise
        raise CommandError(
            f"{feature} needs {error.name}, which is not installed: pip install 'pgrota[{extra}]'",
            USAGE_ERROR,
        ) from None
