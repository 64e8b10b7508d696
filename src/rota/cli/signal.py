"""`rota signal`: send a signal to a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from rota.cli.exit_codes import NOT_FOUND, CommandError, print_note
from rota.cli.format import owner
from rota.cli.format.wait import format_signals
from rota.cli.options.json_input import read_json
from rota.cli.runs import RUN_ID
from rota.cli.target import Target, with_target
from rota.errors import RunNotFound

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.database import Database


@click.command()
@with_target
@click.argument("run", type=RUN_ID)
@click.argument("name")
@click.argument("payload", metavar="[JSON]", default="null")
def signal(target: Target, run: int, name: str, payload: str) -> None:
    """Send a signal to RUN. `ctx.wait_signal(NAME)` in its code returns the payload, now or later.

    JSON is the payload: `true`, `'"yes"'`, `'{"by": "Ada"}'`; the default is null, and - reads stdin.
    The first signal of a NAME is kept; later ones are refused.
    """
    document = read_json(payload, f"{payload!r:.60}", "; text goes into quotes: '\"yes\"'")

    async def send_signal(app: Rota) -> None:
        from rota.engine.audited import run_audited_query
        from rota.model import codec
        from rota.model.durable_context import check_entry_name
        from rota.store.audit import AuditEntry
        from rota.store.signals import send

        check_entry_name("signal", name)
        # Encoded as a program's payload would be: values that JSON or PostgreSQL cannot hold, and
        # values that are too large, are refused.
        text = codec.encode(document, f"the payload of signal {name!r}", app.settings.payload_limit)
        database = (await app.open()).database
        answer = await run_audited_query(
            database,
            send(run, name, text),
            AuditEntry(owner.current_operator(), "signal run", str(run), {"signal": name}),
            was_done=lambda answer: answer == "sent",
            is_idempotent=True,
        )
        run_id = await _run_of(database, run)
        match answer:
            case "sent":
                click.echo(f"signal {name!r} was sent to run {run_id}")
                await _warn_if_not_awaited(database, run_id, name)
            case "known":
                raise CommandError(
                    f"run {run_id} already has signal {name!r}, and the first one is kept; see its payload "
                    f"with `rota show {run_id}`",
                    NOT_FOUND,
                )
            case "ended":
                raise CommandError(
                    f"run {run_id} has ended; signal {name!r} was not sent", NOT_FOUND
                )
            case _:
                raise RunNotFound(f"there is no run {run}; list the runs with `rota runs`")

    target.run(send_signal)


async def _run_of(database: Database, id: int) -> int:
    """Return the id of the run, also for the id of one of its jobs."""
    from rota.store.read import runs

    found = await database.fetch_one(runs.run(id))
    return id if found is None else found.run


async def _warn_if_not_awaited(database: Database, run: int, name: str) -> None:
    """Print a note if the run waits for other signals only: the name may be misspelt."""
    from rota.store.read import job_detail

    awaited = {
        each.name for each in await database.run(job_detail.open_waits(run)) if each.kind == "wait"
    }
    # A job that waited may have received it already.
    received = {
        each.name for each in await database.run(job_detail.signals(run)) if each.waiting_jobs
    }
    if name not in awaited | received and awaited:
        print_note(f"no job waits for it yet; the run waits for {format_signals(sorted(awaited))}")
