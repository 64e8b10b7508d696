"""Which runs a command is about: options that say so, and what is done to all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from rota.cli import paint, whom
from rota.cli.endings import NOT_THERE, Told
from rota.cli.schedules import Moment

if TYPE_CHECKING:
    from rota import Rota
    from rota.app.many import Act, Count, Portion
    from rota.cli.target import Target
    from rota.store.database import Database
    from rota.store.listing import Matching

T = TypeVar("T")

STATES = [state for state in paint.STATES if state not in ("waiting", "skipped")]
"""What a run can be in: only jobs wait for others, or are skipped."""

DONE = {"cancel": "cancelled", "retry": "ready to be tried again"}


def matching_options(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command `matching`: what was said of the runs that are meant; None: nothing was."""

    @wraps(command)
    def wrapped(
        *args: Any,
        name: str | None,
        queue: str | None,
        state: str | None,
        key: str | None,
        since: datetime | None,
        until: datetime | None,
        find: str | None,
        **rest: Any,
    ) -> T:
        from rota.store.listing import Matching

        matching = Matching(
            name=name,
            queue=queue,
            states=None if state is None else (state,),
            key=key,
            since=_with_zone(since),
            until=_with_zone(until),
            text=find or None,
            whole=True,
        )
        return command(*args, matching=matching, **rest)

    for option in reversed(
        (
            click.option(
                "--task", "--flow", "name", metavar="NAME", help="Of this task or flow only."
            ),
            click.option("--queue", metavar="NAME", help="Of this queue only; flows are in none."),
            click.option("--state", type=click.Choice(STATES), help="In this state only."),
            click.option(
                "--key", metavar="KEY", help="Of each task and flow, the last with this key only."
            ),
            click.option("--since", type=Moment(), help="Created then or later; UTC."),
            click.option("--until", type=Moment(), help="Created before; UTC."),
            click.option("--find", metavar="TEXT", help="Text in its name, key, input or error."),
        )
    ):
        wrapped = option(wrapped)
    return wrapped


def is_narrow(matching: Matching) -> bool:
    """Whether anything was said."""
    said = (*(matching.name, matching.queue, matching.states, matching.key), matching.text)
    return any(each is not None for each in (*said, matching.since, matching.until))


def asker(database: Database) -> Callable[..., Any]:
    """Asks as a page does: several queries, one transaction."""

    async def ask(*queries: Any) -> list[Any]:
        [rows] = await database.exchange([queries])
        return rows

    return ask


def to_all(target: Target, act: Act, matching: Matching, *, yes: bool) -> None:
    """Cancel, or try again, all that match, once it was said how many they are."""
    from rota.app import many

    async def counting(app: Rota) -> Count:
        return await many.count(app, asker((await app.open()).database), act, matching)

    count = target.ask(counting)
    if count.count == 0 and count.exact:
        click.echo(
            "no run fits that could be " + ("tried again" if act == "retry" else "cancelled")
        )
        return
    if not yes:
        if not sys.stdin.isatty():
            raise Told(f"{_runs(count)} would be; say --yes to have it done", NOT_THERE)
        click.confirm(f"{act} {_runs(count)}?", abort=True)

    async def acting(app: Rota) -> tuple[int, int]:
        ask = asker((await app.open()).database)
        done = spared = 0
        before: int | None = None
        with paint.console().status(f"0 of {_runs(count)}") as status:
            while True:
                portion: Portion = await many.portion(
                    app,
                    ask,
                    act,
                    matching,
                    upto=count.upto,
                    before=before,
                    by=whom.operator(),
                )
                done, spared, before = (
                    done + portion.done,
                    spared + portion.spared,
                    portion.next,
                )
                status.update(f"{paint.number(done)} of {_runs(count)}")
                if before is None:
                    return done, spared

    done, spared = target.ask(acting)
    click.echo(f"{_number(done)} {'is' if done == 1 else 'are'} {DONE[act]}")
    if spared:
        paint.hint(f"{_number(spared)} had ended, or had been seen to, by then")


def _runs(count: Count) -> str:
    return ("" if count.exact else "at least ") + _number(count.count)


def _number(count: int) -> str:
    return f"{paint.number(count)} {'run' if count == 1 else 'runs'}"


def _with_zone(at: datetime | None) -> datetime | None:
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
