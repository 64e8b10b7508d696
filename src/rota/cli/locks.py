"""`rota locks`: holders and expiry of locks, release by force, and advisory locks of any program."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, NOT_FOUND, USAGE_ERROR, CommandError, exit_with, print_error
from rota.cli.format import owner
from rota.cli.table import WIDE, Column, Table, json_option, limit_option, list_command
from rota.cli.target import Target, operator_context, subcommand_follows, with_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota import Rota
    from rota.operations.coordination import AdvisoryLockDocument, AdvisoryLockList, LockList
    from rota.store.read.coordination import LockRow

MAX_PERMIT_ROWS = 100_000


@click.group(invoke_without_command=True)
@with_target
@click.option("--all", "free", is_flag=True, help="Also list free locks.")
@limit_option(200)
@json_option
def locks(target: Target, free: bool, limit: int, as_json: bool) -> None:
    """List the locks and permits that are held: holder, age and token.

    An expired lock was not released: its holder died, froze or could not reach the database. It is free,
    and is listed for an hour or until it is acquired again.
    """
    if subcommand_follows(target):
        return
    from rota.operations.coordination import list_locks

    def show(document: LockList, now: datetime) -> None:
        if document.locks:
            _print_locks(document.locks, now)
            if len(document.locks) == limit:
                output.hint(f"first {limit} locks; list more with --limit {limit * 10}")
        elif free:
            click.echo('no locks yet; acquire one with `async with app.lock("name")`')
        else:
            click.echo(
                'no lock is held; acquire one with `async with app.lock("name")`, '
                "or list free locks with --all"
            )

    query = {"include_free": free, "limit": limit}
    list_command(target, list_locks, show, as_json=as_json, query=query)


def _print_locks(found: list[LockRow], now: datetime) -> None:
    Table["LockRow"](
        Column("lock", lambda row, now: row.name, wraps=True),
        Column("permit", lambda row, now: row.permit or "", right=True),
        *owner.columns("holder", found),
        Column(
            "held", _age, lambda row: "yellow" if _is_held_too_long(row, now) else "", right=True
        ),
        Column("expires", _expiry, lambda row: "" if row.held else "yellow"),
        Column("token", lambda row, now: row.token, right=True),
        Column(
            "renewals",
            lambda row, now: row.renewals if row.held else "",
            right=True,
            from_width=WIDE,
        ),
        Column("awaited", _awaited, "cyan", right=True),
    ).print(found, now)
    if any(each.held for each in found):
        output.hint("release a lock by force with `rota locks release NAME`")


def _age(lock: LockRow, now: datetime) -> str:
    return output.format_age(lock.acquired, now) if lock.held and lock.acquired else ""


def _is_held_too_long(lock: LockRow, now: datetime) -> bool:
    if lock.acquired is None or lock.max_held is None:
        return False
    return (now - lock.acquired).total_seconds() > lock.max_held


def _expiry(lock: LockRow, now: datetime) -> str:
    if lock.instance is None or lock.expires is None:
        return ""
    if not lock.held:
        return f"{output.format_age(lock.expires, now)} ago"
    return f"in {output.format_age(now, lock.expires)}"


def _awaited(lock: LockRow, now: datetime) -> str:
    """Return how long a client has been waiting, as recorded on the lock's row."""
    return output.format_age(lock.awaited_since, now) if lock.awaited_since and lock.held else ""


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
        from rota.operations.coordination import LockListQuery, ReleaseLockRequest, list_locks
        from rota.operations.coordination import release_lock as release_operation

        context = operator_context(app)
        query = LockListQuery(name, include_free=True, limit=MAX_PERMIT_ROWS)
        found = await list_locks.call(context, query=query)
        lock = _choose(found.locks, name, permit)
        now = await context.now()
        if not yes:
            _describe_effect(lock, now)
            print_error("nothing was released; repeat the command with --yes to release it")
            exit_with(FAILED)
        body = ReleaseLockRequest(lock.permit, str(lock.token))
        released = await release_operation.call(context, name=name, body=body)
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


# Advisory locks


@locks.command()
@with_target
@json_option
def advisory(target: Target, as_json: bool) -> None:
    """List the advisory locks in this database with their holders, and the sessions that wait for one.

    Locks of leaders, workers, migrations and retention are named. All others belong to other programs
    and are listed by key.
    """
    from rota.operations.coordination import list_advisory_locks

    list_command(target, list_advisory_locks, _print_advisory, as_json=as_json)


def _print_advisory(document: AdvisoryLockList, now: datetime) -> None:
    if not document.advisory_locks:
        click.echo(
            "no advisory lock is held in this database; leaders and workers hold some while they live"
        )
        return
    ADVISORY_LOCKS.print(document.advisory_locks, now)
    output.hint("end a session and release its locks with `select pg_terminate_backend(PID)`")


def _lock(lock: AdvisoryLockDocument, now: datetime) -> str:
    return f"{lock.namespace or 'other'} {lock.owner or ''}".strip()


def _key(lock: AdvisoryLockDocument, now: datetime) -> str:
    if lock.class_id is None or lock.namespace is not None:
        return lock.key
    signed = lock.class_id - 2**32 if lock.class_id >= 2**31 else lock.class_id
    return f"{signed}, {lock.key}"


def _mode(lock: AdvisoryLockDocument, now: datetime) -> str:
    if not lock.granted:
        return "waiting"
    return "" if lock.exclusive else "shared"


def _session_state(lock: AdvisoryLockDocument, now: datetime) -> str:
    since = "" if lock.state_seconds is None else f" {output.format_duration(lock.state_seconds)}"
    return f"{lock.state}{since}" if lock.state else ""


ADVISORY_LOCKS = Table["AdvisoryLockDocument"](
    Column("lock", _lock, lambda row: "" if row.namespace else "dim", wraps=True),
    Column("key", _key, right=True, wraps=True),
    Column("pid", lambda row, now: row.pid, right=True),
    Column("", _mode, lambda row: "" if row.granted else "yellow"),
    Column("application", lambda row, now: row.application, wraps=True),
    Column("user", lambda row, now: row.user, wraps=True),
    Column("client", lambda row, now: row.address, wraps=True),
    Column("state", _session_state, wraps=True),
    Column(
        "connected",
        lambda row, now: output.format_duration(row.connected_seconds),
        right=True,
        from_width=WIDE,
    ),
)
