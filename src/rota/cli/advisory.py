"""`rota locks advisory`: who holds which advisory lock, ours and everybody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import paint, whom
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.standing import AdvisoryLine


@click.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def advisory(target: Target, as_json: bool) -> None:
    """List who holds which advisory lock in this database, or waits for one.

    What a leader, a worker, a migration or the removal of old runs holds is named. The rest is somebody
    else's, with its key as it was given.
    """
    from rota.store import standing

    async def asking(app: Rota) -> list[AdvisoryLine]:
        return await (await app.open()).database.run(standing.advisory_locks())

    found = target.ask(asking)
    if as_json:
        paint.say_json([_document(each) for each in found])
    elif found:
        _print_advisory(found)
    else:
        click.echo(
            "no advisory lock is held in this database; leaders and workers hold some while they live"
        )


def _document(line: AdvisoryLine) -> dict[str, Any]:
    return {
        **paint.fields(line),
        "namespace": _namespace(line),
        "key": line.key if line.pair else _whole(line),
        "space": line.space if line.pair else None,
    }


def _print_advisory(found: list[AdvisoryLine]) -> None:
    columns = {
        "lock": [_locked(each) for each in found],
        "key": [paint.whole(_key(each)) for each in found],
        "pid": [paint.text(each.pid) for each in found],
        "": [_mode(each) for each in found],
        "application": [paint.whole(each.application) for each in found],
        "user": [paint.whole(each.user) for each in found],
        "client": [paint.whole(each.address) for each in found],
        "state": [_state(each) for each in found],
        "connected": [paint.text(paint.span(each.connected)) for each in found],
    }
    if whom.is_narrow():
        del columns["connected"]
    whom.show(
        columns,
        right=("key", "pid", "connected"),
        free=("lock", "key", "application", "user", "client", "state"),
    )
    paint.hint("a session is ended, with all it holds, by `select pg_terminate_backend(PID)`")


def _namespace(line: AdvisoryLine) -> str | None:
    from rota.store.advisory import NAMES

    return NAMES.get(line.space) if line.pair else None


def _locked(line: AdvisoryLine) -> Text:
    name = _namespace(line)
    if name is None:
        return paint.whole("somebody else's", "dim")
    return paint.whole(f"{name} {line.whose or ''}".strip())


def _key(line: AdvisoryLine) -> str:
    if not line.pair:
        return str(_whole(line))
    return str(line.key) if _namespace(line) else f"{_signed(line.space, 32)}, {line.key}"


def _whole(line: AdvisoryLine) -> int:
    return _signed(line.space << 32 | line.key, 64)


def _signed(value: int, bits: int) -> int:
    return value - 2**bits if value >= 2 ** (bits - 1) else value


def _mode(line: AdvisoryLine) -> Text:
    if not line.granted:
        return paint.text("waits", "yellow")
    return paint.text("" if line.exclusive else "shared")


def _state(line: AdvisoryLine) -> Text:
    since = "" if line.since is None else f" {paint.span(line.since)}"
    return paint.whole(f"{line.state}{since}" if line.state else "")
