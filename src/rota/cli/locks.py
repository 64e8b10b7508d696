"""`rota locks`: holders and expiry of locks, and release by force."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.advisory import advisory
from rota.cli.exit_codes import FAILED, NOT_FOUND, USAGE_ERROR, CommandError, exit_with, print_error
from rota.cli.format import owner
from rota.cli.target import Target, subcommand_follows, with_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from rota import Rota
    from rota.store.audit import Blocker, ReleasedLock
    from rota.store.connection import PgConnection
    from rota.store.database import Database
    from rota.store.read.coordination import LockRow

MAX_PERMIT_ROWS = 100_000
BLOCKER_POLL_SECONDS = 0.1


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
    """List the locks and permits that are held: holder, age and token.

    An expired lock was not released: its holder died, froze or could not reach the database. It is free,
    and is listed for an hour or until it is acquired again.
    """
    if subcommand_follows(target):
        return
    from rota.store.read import coordination, runs

    async def query(app: Rota) -> tuple[list[LockRow], datetime]:
        database = (await app.open()).database
        found = await database.run(coordination.locks(include_free=free, limit=limit))
        [now] = await database.run(runs.database_time())
        return found, now

    found, now = target.run(query)
    if as_json:
        output.print_json([output.fields(each) for each in found])
    elif found:
        _print_locks(found, now)
        if len(found) == limit:
            output.hint(f"there may be more: --limit {limit * 10}")
    elif free:
        click.echo('there has never been a lock; `async with app.lock("name")` takes one')
    else:
        click.echo('no lock is held; `async with app.lock("name")` holds one (free ones: --all)')


def _print_locks(found: list[LockRow], now: datetime) -> None:
    columns = {
        "lock": [output.wrapped_cell(each.name) for each in found],
        "permit": [output.cell(each.permit or "") for each in found],
        **owner.columns("holder", found),
        "held": [_age(each, now) for each in found],
        "expires": [_expiry(each, now) for each in found],
        "token": [output.cell(each.token) for each in found],
        "renewals": [output.cell(each.renewals if each.held else "") for each in found],
        "awaited": [_awaited(each, now) for each in found],
    }
    if owner.is_narrow():
        del columns["renewals"]
    owner.print_table(
        columns,
        right=("permit", "process", "held", "token", "renewals", "awaited"),
        free=("lock", "holder", "host"),
    )
    if any(each.held for each in found):
        output.hint("one is taken from its holder with `rota locks release NAME`")


def _age(lock: LockRow, now: datetime) -> Text:
    if not lock.held or lock.acquired is None:
        return output.cell("")
    seconds = (now - lock.acquired).total_seconds()
    exceeded = lock.max_held is not None and seconds > lock.max_held
    return output.cell(output.format_age(lock.acquired, now), "yellow" if exceeded else "")


def _expiry(lock: LockRow, now: datetime) -> Text:
    if lock.instance is None or lock.expires is None:
        return output.cell("")
    if not lock.held:
        return output.cell(f"{output.format_age(lock.expires, now)} ago", "yellow")
    return output.cell(f"in {output.format_age(now, lock.expires)}")


def _awaited(lock: LockRow, now: datetime) -> Text:
    """Return how long a client has been waiting, as recorded on the lock's row."""
    awaited = lock.awaited_since is not None and lock.held
    return output.cell(
        output.format_age(lock.awaited_since, now) if awaited and lock.awaited_since else "", "cyan"
    )


# Release by force


@locks.command()
@with_target
@click.argument("name")
@click.option("--permit", type=click.IntRange(1), metavar="N", help="Of a semaphore: which permit.")
@click.option("--yes", is_flag=True, help="Do it. Without, it only says what would happen.")
def release(target: Target, name: str, permit: int | None, yes: bool) -> None:
    """Release the lock NAME by force. The action is recorded in `rota audit`.

    The next holder gets a new token. Writes of the old holder are refused where they assert the old
    token (lock.assert_held, rota.assert_lock). Writes without an assertion may happen twice.
    """

    async def release_lock(app: Rota) -> None:
        from rota.store.read import coordination, runs

        database = (await app.open()).database
        query = coordination.locks(name, include_free=True, limit=MAX_PERMIT_ROWS)
        lock = _choose(await database.run(query), name, permit)
        [now] = await database.run(runs.database_time())
        if not yes:
            _describe_effect(lock, now)
            print_error("nothing was done; to do it, say --yes")
            exit_with(FAILED)
        released = await _release(database, lock)
        holder = owner.describe(released.host, released.pid, released.label)
        output.print_text(
            f"{_title(lock)} is free: it was held by {holder} for "
            f"{output.format_duration(released.age)}, under token "
            f"{released.token}. Nothing that asserts this token goes through any more; the next holder's "
            "is larger"
        )

    target.run(release_lock)


def _choose(found: Sequence[LockRow], name: str, permit: int | None) -> LockRow:
    if not found:
        raise CommandError(
            f"there is no lock {name!r}; `rota locks --all` lists those there are", NOT_FOUND
        )
    by_permit = {each.permit: each for each in found}
    if permit is None and 0 not in by_permit:
        held = [str(each.permit) for each in found if each.held]
        raise CommandError(
            f"{name!r} is a semaphore: say which permit, --permit N; "
            f"{f'{_enumerate(held)} held' if held else 'none is held'}",
            USAGE_ERROR if held else NOT_FOUND,
        )
    lock = by_permit.get(permit or 0)
    if lock is None:
        raise CommandError(f"there is no permit {permit} of {name!r}", NOT_FOUND)
    if lock.instance is None:
        raise CommandError(f"{_title(lock)} is not held by anybody", NOT_FOUND)
    return lock


def _enumerate(numbers: list[str]) -> str:
    if len(numbers) == 1:
        return f"{numbers[0]} is"
    return f"{', '.join(numbers[:-1])} and {numbers[-1]} are"


def _title(lock: LockRow) -> str:
    return f"permit {lock.permit} of {lock.name!r}" if lock.permit else f"lock {lock.name!r}"


def _describe_effect(lock: LockRow, now: datetime) -> None:
    holder = owner.describe(lock.host, lock.pid, lock.label)
    assert lock.acquired is not None
    assert lock.expires is not None
    if not lock.held:
        output.print_text(
            f"{_title(lock)} expired {output.format_age(lock.expires, now)} ago, under token {lock.token}: "
            f"{holder} did not give it back. Whoever asks gets it. If nobody does, a transaction that "
            "relies on it is still open: --yes finds out whose."
        )
        return
    output.print_text(
        f"{_title(lock)} is held by {holder} under token {lock.token}, for "
        f"{output.format_age(lock.acquired, now)}; it runs out in "
        f"{output.format_age(now, lock.expires)} unless it is "
        "renewed."
    )
    output.print_text(
        "Released, it goes to whoever asks next, under a larger token. Its holder hears of it when it next "
        f"renews; until then it goes on. What it does under token {lock.token} is refused where that is "
        "asserted, and happens where it is not. To stop the process itself is safer."
    )


async def _release(database: Database, lock: LockRow) -> ReleasedLock:
    from rota.store import audit, pg_errors
    from rota.store.database import run

    connection = await database.connect()
    blockers: list[Blocker] = []
    try:
        # One transaction, so that a pooler runs both statements in the same server process.
        async with connection.transaction():
            [pid] = await run(connection, audit.backend_pid(), database.schema)
            polling = asyncio.create_task(_poll_blockers(database, pid, blockers))
            try:
                query = audit.release_lock(
                    lock.name, lock.permit, owner.current_operator(), lock.token
                )
                released = await run(connection, query, database.schema)
            finally:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
    except Exception as error:
        if not pg_errors.is_contended(error):
            raise
        raise CommandError(_blocked(lock, blockers)) from error
    finally:
        await connection.close()
    if not released:
        raise CommandError(
            f"{_title(lock)} is not held under token {lock.token} any more: look again", NOT_FOUND
        )
    return released[0]


async def _poll_blockers(database: Database, pid: int, found: list[Blocker]) -> None:
    from rota.store import audit
    from rota.store.database import run

    connection: PgConnection = await database.connect()
    try:
        while True:
            await asyncio.sleep(BLOCKER_POLL_SECONDS)
            if blockers := await run(connection, audit.blockers(pid), database.schema):
                found[:] = blockers
    finally:
        await connection.close()


def _blocked(lock: LockRow, blockers: Sequence[Blocker]) -> str:
    if not blockers:
        return f"{_title(lock)} was busy for two seconds, so nothing was done; try again"
    sessions = "; ".join(_describe_session(each) for each in blockers)
    commands = " and ".join(f"`select pg_terminate_backend({each.pid})`" for each in blockers)
    return (
        f"{_title(lock)} is relied on by a transaction that is still open, so nothing was done: "
        f"{sessions}. "
        f"End it where it runs, or by {commands}, which undoes what it did; then try again"
    )


def _describe_session(blocker: Blocker) -> str:
    words = [f"process {blocker.pid} of the server"]
    origin = [
        blocker.application,
        blocker.user and f"user {blocker.user}",
        blocker.address and f"from {blocker.address}",
    ]
    if any(origin):
        words.append(f"({', '.join(each for each in origin if each)})")
    if blocker.open is not None:
        words.append(f"has had it open for {output.format_duration(blocker.open)}")
    if blocker.state is not None:
        words.append(f"and is {blocker.state}")
    return " ".join(words)


locks.add_command(advisory)
