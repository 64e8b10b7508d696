"""`rota locks advisory`: holders of advisory locks, of Rota and of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import output
from rota.cli.format import owner
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.read.coordination import AdvisoryLockRow


@click.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def advisory(target: Target, as_json: bool) -> None:
    """List the advisory locks in this database with their holders, and the sessions that wait for one.

    Locks of leaders, workers, migrations and retention are named. All others belong to other programs
    and are listed by key.
    """
    from rota.store.read import coordination

    async def query(app: Rota) -> list[AdvisoryLockRow]:
        return await (await app.open()).database.run(coordination.advisory_locks())

    found = target.run(query)
    if as_json:
        output.print_json([_document(each) for each in found])
    elif found:
        _print_advisory(found)
    else:
        click.echo(
            "no advisory lock is held in this database; leaders and workers hold some while they live"
        )


def _document(lock: AdvisoryLockRow) -> dict[str, Any]:
    return {
        **output.fields(lock),
        "namespace": _namespace(lock),
        "key": lock.key if lock.is_pair else _bigint_key(lock),
        "class_id": lock.namespace if lock.is_pair else None,
    }


def _print_advisory(found: list[AdvisoryLockRow]) -> None:
    columns = {
        "lock": [_lock_cell(each) for each in found],
        "key": [output.wrapped_cell(_key(each)) for each in found],
        "pid": [output.cell(each.pid) for each in found],
        "": [_mode(each) for each in found],
        "application": [output.wrapped_cell(each.application) for each in found],
        "user": [output.wrapped_cell(each.user) for each in found],
        "client": [output.wrapped_cell(each.address) for each in found],
        "state": [_state(each) for each in found],
        "connected": [
            output.cell(output.format_duration(each.connected_seconds)) for each in found
        ],
    }
    if owner.is_narrow():
        del columns["connected"]
    owner.print_table(
        columns,
        right=("key", "pid", "connected"),
        free=("lock", "key", "application", "user", "client", "state"),
    )
    output.hint("end a session and release its locks with `select pg_terminate_backend(PID)`")


def _namespace(lock: AdvisoryLockRow) -> str | None:
    from rota.store.advisory_locks import NAMESPACE_NAMES

    return NAMESPACE_NAMES.get(lock.namespace) if lock.is_pair else None


def _lock_cell(lock: AdvisoryLockRow) -> Text:
    name = _namespace(lock)
    if name is None:
        return output.wrapped_cell("other", "dim")
    return output.wrapped_cell(f"{name} {lock.owner or ''}".strip())


def _key(lock: AdvisoryLockRow) -> str:
    if not lock.is_pair:
        return str(_bigint_key(lock))
    return str(lock.key) if _namespace(lock) else f"{_signed(lock.namespace, 32)}, {lock.key}"


def _bigint_key(lock: AdvisoryLockRow) -> int:
    return _signed(lock.namespace << 32 | lock.key, 64)


def _signed(value: int, bits: int) -> int:
    return value - 2**bits if value >= 2 ** (bits - 1) else value


def _mode(lock: AdvisoryLockRow) -> Text:
    if not lock.granted:
        return output.cell("waiting", "yellow")
    return output.cell("" if lock.exclusive else "shared")


def _state(lock: AdvisoryLockRow) -> Text:
    since = "" if lock.state_seconds is None else f" {output.format_duration(lock.state_seconds)}"
    return output.wrapped_cell(f"{lock.state}{since}" if lock.state else "")
