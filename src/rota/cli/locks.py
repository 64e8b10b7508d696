"""`rota locks`: who holds what and until when, and how it is taken from one."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint, whom
from rota.cli.advisory import advisory
from rota.cli.endings import FAILED, MISTAKE, NOT_THERE, Told, leave, tell
from rota.cli.target import Target, goes_on, with_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from rota import Rota
    from rota.store.audit import Blocker, Taken
    from rota.store.database import Database
    from rota.store.session import Session
    from rota.store.standing import LockLine

EVERY_PERMIT = 100_000
LOOK_EVERY = 0.1


@click.group(invoke_without_command=True)
@with_target
@click.option("--all", "free", is_flag=True, help="Also those that nobody holds.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=200,
    show_default=True,
    help="At most so many.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def locks(target: Target, free: bool, limit: int, as_json: bool) -> None:
    """List the locks and permits that are held: by whom, for how long, under which token.

    One that has run out was not given back: its holder died, froze or could not reach the database. Nobody
    holds it any more. It is listed for an hour, or until somebody takes it.
    """
    if goes_on(target):
        return
    from rota.store import standing, views

    async def asking(app: Rota) -> tuple[list[LockLine], datetime]:
        database = (await app.open()).database
        found = await database.run(standing.locks(free=free, limit=limit))
        [now] = await database.run(views.clock())
        return found, now

    found, now = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each) for each in found])
    elif found:
        _print_locks(found, now)
        if len(found) == limit:
            paint.hint(f"there may be more: --limit {limit * 10}")
    elif free:
        click.echo('there has never been a lock; `async with app.lock("name")` takes one')
    else:
        click.echo('no lock is held; `async with app.lock("name")` holds one (free ones: --all)')


def _print_locks(found: list[LockLine], now: datetime) -> None:
    columns = {
        "lock": [paint.whole(each.name) for each in found],
        "permit": [paint.text(each.permit or "") for each in found],
        **whom.columns("holder", found),
        "held": [_age(each, now) for each in found],
        "expires": [_expiry(each, now) for each in found],
        "token": [paint.text(each.token) for each in found],
        "renewals": [paint.text(each.renewals if each.held else "") for each in found],
        "wanted": [_wanted(each, now) for each in found],
    }
    if whom.is_narrow():
        del columns["renewals"]
    whom.show(
        columns,
        right=("permit", "process", "held", "token", "renewals", "wanted"),
        free=("lock", "holder", "host"),
    )
    if any(each.held for each in found):
        paint.hint("one is taken from its holder with `rota locks release NAME`")


def _age(lock: LockLine, now: datetime) -> Text:
    if not lock.held or lock.acquired is None:
        return paint.text("")
    seconds = (now - lock.acquired).total_seconds()
    is_late = lock.longest is not None and seconds > lock.longest
    return paint.text(paint.age(lock.acquired, now), "yellow" if is_late else "")


def _expiry(lock: LockLine, now: datetime) -> Text:
    if lock.instance is None or lock.expires is None:
        return paint.text("")
    if not lock.held:
        return paint.text(f"{paint.age(lock.expires, now)} ago", "yellow")
    return paint.text(f"in {paint.age(now, lock.expires)}")


def _wanted(lock: LockLine, now: datetime) -> Text:
    """For how long somebody has been waiting, as far as the holder was told."""
    waited = lock.wanted is not None and lock.held
    return paint.text(paint.age(lock.wanted, now) if waited and lock.wanted else "", "cyan")


# Taking one from its holder


@locks.command()
@with_target
@click.argument("name")
@click.option("--permit", type=click.IntRange(1), metavar="N", help="Of a semaphore: which permit.")
@click.option("--yes", is_flag=True, help="Do it. Without, it only says what would happen.")
def release(target: Target, name: str, permit: int | None, yes: bool) -> None:
    """Take the lock NAME from whoever holds it. Who did so is written down: `rota audit`.

    Its token is drawn anew, so whatever its holder still does under the old one is refused where it is
    asserted (lock.assert_held, rota.assert_lock). What is not asserted may happen twice.
    """

    async def releasing(app: Rota) -> None:
        from rota.store import standing, views

        database = (await app.open()).database
        query = standing.locks(name, free=True, limit=EVERY_PERMIT)
        lock = _choose(await database.run(query), name, permit)
        [now] = await database.run(views.clock())
        if not yes:
            _say_what_would_happen(lock, now)
            tell("nothing was done; to do it, say --yes")
            leave(FAILED)
        taken = await _take(database, lock)
        who = whom.told(taken.host, taken.pid, taken.label)
        paint.say(
            f"{_what(lock)} is free: it was held by {who} for {paint.span(taken.age)}, under token "
            f"{taken.token}. Nothing that asserts this token goes through any more; the next holder's "
            "is larger"
        )

    target.ask(releasing)


def _choose(found: Sequence[LockLine], name: str, permit: int | None) -> LockLine:
    if not found:
        raise Told(
            f"there is no lock {name!r}; `rota locks --all` lists those there are", NOT_THERE
        )
    by_number = {each.permit: each for each in found}
    if permit is None and 0 not in by_number:
        held = [str(each.permit) for each in found if each.held]
        raise Told(
            f"{name!r} is a semaphore: say which permit, --permit N; "
            f"{f'{_are(held)} held' if held else 'none is held'}",
            MISTAKE if held else NOT_THERE,
        )
    lock = by_number.get(permit or 0)
    if lock is None:
        raise Told(f"there is no permit {permit} of {name!r}", NOT_THERE)
    if lock.instance is None:
        raise Told(f"{_what(lock)} is not held by anybody", NOT_THERE)
    return lock


def _are(numbers: list[str]) -> str:
    if len(numbers) == 1:
        return f"{numbers[0]} is"
    return f"{', '.join(numbers[:-1])} and {numbers[-1]} are"


def _what(lock: LockLine) -> str:
    return f"permit {lock.permit} of {lock.name!r}" if lock.permit else f"lock {lock.name!r}"


def _say_what_would_happen(lock: LockLine, now: datetime) -> None:
    who = whom.told(lock.host, lock.pid, lock.label)
    assert lock.acquired is not None
    assert lock.expires is not None
    if not lock.held:
        paint.say(
            f"{_what(lock)} ran out {paint.age(lock.expires, now)} ago, under token {lock.token}: "
            f"{who} did not give it back. Whoever asks gets it. If nobody does, a transaction that "
            "relies on it is still open: --yes finds out whose."
        )
        return
    paint.say(
        f"{_what(lock)} is held by {who} under token {lock.token}, for "
        f"{paint.age(lock.acquired, now)}; it runs out in {paint.age(now, lock.expires)} unless it is "
        "renewed."
    )
    paint.say(
        "Released, it goes to whoever asks next, under a larger token. Its holder hears of it when it next "
        f"renews; until then it goes on. What it does under token {lock.token} is refused where that is "
        "asserted, and happens where it is not. To stop the process itself is safer."
    )


async def _take(database: Database, lock: LockLine) -> Taken:
    from rota.store import audit, failures
    from rota.store.database import run

    connection = await database.connect()
    blockers: list[Blocker] = []
    try:
        # In one transaction, so that through a pooler it is one process of the server.
        async with connection.transaction():
            [pid] = await run(connection, audit.process(), database.schema)
            looking = asyncio.create_task(_look_who_blocks(database, pid, blockers))
            try:
                taking = audit.release(lock.name, lock.permit, whom.operator(), lock.token)
                taken = await run(connection, taking, database.schema)
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
    except Exception as error:
        if not failures.is_contended(error):
            raise
        raise Told(_relied_on(lock, blockers)) from error
    finally:
        await connection.close()
    if not taken:
        raise Told(
            f"{_what(lock)} is not held under token {lock.token} any more: look again", NOT_THERE
        )
    return taken[0]


async def _look_who_blocks(database: Database, pid: int, found: list[Blocker]) -> None:
    from rota.store import audit
    from rota.store.database import run

    connection: Session = await database.connect()
    try:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if seen := await run(connection, audit.blockers(pid), database.schema):
                found[:] = seen
    finally:
        await connection.close()


def _relied_on(lock: LockLine, blockers: Sequence[Blocker]) -> str:
    if not blockers:
        return f"{_what(lock)} was busy for two seconds, so nothing was done; try again"
    who = "; ".join(_of_session(each) for each in blockers)
    ends = " and ".join(f"`select pg_terminate_backend({each.pid})`" for each in blockers)
    return (
        f"{_what(lock)} is relied on by a transaction that is still open, so nothing was done: {who}. "
        f"End it where it runs, or by {ends}, which undoes what it did; then try again"
    )


def _of_session(blocker: Blocker) -> str:
    words = [f"process {blocker.pid} of the server"]
    whose = [
        blocker.application,
        blocker.user and f"user {blocker.user}",
        blocker.address and f"from {blocker.address}",
    ]
    if any(whose):
        words.append(f"({', '.join(each for each in whose if each)})")
    if blocker.open is not None:
        words.append(f"has had it open for {paint.span(blocker.open)}")
    if blocker.state is not None:
        words.append(f"and is {blocker.state}")
    return " ".join(words)


locks.add_command(advisory)
