"""Nodes of a flow that only wait: for a time, for a signal. They are tasks whose jobs sleep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rota.errors import DefinitionError
from rota.model.context import Context
from rota.model.durably import NO_DEFAULT, check_entry_name
from rota.model.settings import Duration, to_seconds


def sleep_node(name: str, duration: Duration) -> Callable[..., Any]:
    sleep_seconds = to_seconds(duration)
    if not sleep_seconds >= 0:
        raise DefinitionError(
            f"{name!r} sleeps for {sleep_seconds:g} seconds; it has to be 0 or more"
        )

    async def sleep(ctx: Context) -> None:
        await ctx.sleep(timedelta(seconds=sleep_seconds))

    sleep.__doc__ = f"Sleeps for {timedelta(seconds=sleep_seconds)}."
    return sleep


def signal_node(
    signal: str, payload_type: Any, timeout: Duration | None, default: Any
) -> Callable[..., Any]:
    check_entry_name("signal", signal)
    if default is not NO_DEFAULT and timeout is None:
        raise DefinitionError(
            f"a wait for signal {signal!r} that never ends needs no default; give it a timeout, too"
        )

    async def wait(ctx: Context) -> Any:
        return await ctx.wait_signal(signal, payload_type, timeout=timeout, default=default)

    wait.__doc__ = f"Waits for signal {signal!r}."
    # What those who take its result are checked against.
    result_type = (
        payload_type
        if default is NO_DEFAULT or payload_type is Any
        else payload_type | type(default)
    )
    wait.__annotations__ = {"ctx": Context, "return": result_type}
    return wait
