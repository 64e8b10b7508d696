"""`rota locks advisory`: holders of advisory locks, of Rota and of other programs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.table import WIDE, Column, Table, json_option, list_command
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota.operations.coordination import AdvisoryLockDocument, AdvisoryLockList


@click.command()
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


def _state(lock: AdvisoryLockDocument, now: datetime) -> str:
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
    Column("state", _state, wraps=True),
    Column(
        "connected",
        lambda row, now: output.format_duration(row.connected_seconds),
        right=True,
        from_width=WIDE,
    ),
)
