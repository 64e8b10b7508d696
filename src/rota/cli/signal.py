"""`rota signal`: send a signal to a run."""

from __future__ import annotations

import rich_click as click

from rota.cli.exit_codes import NOT_FOUND, CommandError, print_note
from rota.cli.format.wait import format_signals
from rota.cli.options.json_input import read_json
from rota.cli.runs import RUN_ID
from rota.cli.target import Target, with_target


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

    from rota.operations.run_documents import SignalRequest
    from rota.operations.runs import signal_run

    sent, _ = target.perform(signal_run, run=run, body=SignalRequest(name, document))
    match sent.status:
        case "sent":
            click.echo(f"signal {name!r} was sent to run {sent.run}")
        case "known":
            raise CommandError(
                f"run {sent.run} already has signal {name!r}, and the first one is kept; see its "
                f"payload with `rota show {sent.run}`",
                NOT_FOUND,
            )
        case "ended":
            raise CommandError(f"run {sent.run} has ended; signal {name!r} was not sent", NOT_FOUND)
    if sent.awaits:
        # The name may be misspelt.
        print_note(f"no job waits for it yet; the run waits for {format_signals(sent.awaits)}")
