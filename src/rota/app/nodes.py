"""Nodes of a flow that only wait: for a time, for a signal. They are tasks whose jobs sleep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rota.errors import DefinitionError
from rota.model.context import Context
from rota.model.durably import NO_DEFAULT, check_label
from rota.model.settings import Duration, seconds


def sleeping(name: str, duration: Duration) -> Callable[..., Any]:
    whole = seconds(duration)
    if not whole >= 0:
        raise DefinitionError(f"{name!r} sleeps for {whole:g} seconds; it has to be 0 or more")

    async def sleep(ctx: Context) -> None:
        await ctx.sleep(timedelta(seconds=whole))

    sleep.__doc__ = f"Sleeps for {timedelta(seconds=whole)}."
    return sleep


def waiting(signal: str, kind: Any, timeout: Duration | None, default: Any) -> Callable[..., Any]:
    check_label("signal", signal)
    if default is not NO_DEFAULT and timeout is None:
        raise DefinitionError(
            f"a wait for signal {signal!r} that never ends needs no default; give it a timeout, too"
        )

    async def wait(ctx: Context) -> Any:
        return await ctx.wait(signal, kind, timeout=timeout, default=default)

    wait.__doc__ = f"Waits for signal {signal!r}."
    # What those who take its result are checked against.
    given = kind if default is NO_DEFAULT or kind is Any else kind | type(default)
    wait.__annotations__ = {"ctx": Context, "return": given}
    return wait
