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
@click.option("--all", "free", is_flag=True, help="Also list free locks.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=200,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
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
            output.hint(f"first {limit} locks; list more with --limit {limit * 10}")
    elif free:
        click.echo('no locks yet; acquire one with `async with app.lock("name")`')
    else:
        click.echo(
            'no lock is held; acquire one with `async with app.lock("name")`, '
            "or list free locks with --all"
        )


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
        output.hint("release a lock by force with `rota locks release NAME`")


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
@click.option("--permit", type=click.IntRange(1), metavar="N", help="Permit of a semaphore.")
@click.option("--yes", is_flag=True, help="Release the lock. Without it, only describe the effect.")
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
            print_error("nothing was released; repeat the command with --yes to release it")
            exit_with(FAILED)
        released = await _release(database, lock)
        holder = owner.describe(released.host, released.pid, released.label)
        output.print_text(
            f"released {_title(lock)}: it was held by {holder} for "
            f"{output.format_duration(released.age)} under token {released.token}. Writes that assert "
            "this token are refused from now on; the next holder gets a larger one"
        )

    target.run(release_lock)


def _choose(found: Sequence[LockRow], name: str, permit: int | None) -> LockRow:
    if not found:
        raise CommandError(
            f"lock {name!r} does not exist; list all locks with `rota locks --all`", NOT_FOUND
        )
    by_permit = {each.permit: each for each in found}
    if permit is None and 0 not in by_permit:
        held = [str(each.permit) for each in found if each.held]
        raise CommandError(
            f"{name!r} is a semaphore: choose a permit with --permit N; "
            f"{f'{_enumerate(held)} held' if held else 'none is held'}",
            USAGE_ERROR if held else NOT_FOUND,
        )
    lock = by_permit.get(permit or 0)
    if lock is None:
        raise CommandError(f"{name!r} has no permit {permit}", NOT_FOUND)
    if lock.instance is None:
        raise CommandError(f"{_title(lock)} is not held", NOT_FOUND)
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
            f"{_title(lock)} expired {output.format_age(lock.expires, now)} ago, under token "
            f"{lock.token}: {holder} did not release it. The next client that asks acquires it. If no "
            "client can, an open transaction still asserts the lock: --yes reports which one."
        )
        return
    output.print_text(
        f"{_title(lock)} is held by {holder} under token {lock.token} for "
        f"{output.format_age(lock.acquired, now)}; it expires in "
        f"{output.format_age(now, lock.expires)} unless it is renewed."
    )
    output.print_text(
        "After a release the next client acquires it under a larger token. The current holder learns of "
        "the release at its next renewal and runs on until then. Its writes that assert token "
        f"{lock.token} are refused; its other writes take effect. Stopping its process is safer."
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
            f"{_title(lock)} is no longer held under token {lock.token}; list it again", NOT_FOUND
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
        return f"{_title(lock)} was busy for two seconds and was not released; try again"
    sessions = "; ".join(_describe_session(each) for each in blockers)
    commands = " and ".join(f"`select pg_terminate_backend({each.pid})`" for each in blockers)
    return (
        f"{_title(lock)} was not released: an open transaction asserts it: {sessions}. "
        f"End the transaction in its program, or roll it back with {commands}; then try again"
    )


def _describe_session(blocker: Blocker) -> str:
    words = [f"server process {blocker.pid}"]
    origin = [
        blocker.application,
        blocker.user and f"user {blocker.user}",
        blocker.address and f"from {blocker.address}",
    ]
    if any(origin):
        words.append(f"({', '.join(each for each in origin if each)})")
    if blocker.open is not None:
        words.append(f"has been in the transaction for {output.format_duration(blocker.open)}")
    if blocker.state is not None:
        words.append(f"and is {blocker.state}")
    return " ".join(words)


locks.add_command(advisory)
