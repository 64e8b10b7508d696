"""`rota signal`: tell a run something that its code waits for, or will."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import whom
from rota.cli.documents import read_json
from rota.cli.endings import NOT_THERE, Told, note
from rota.cli.runs import RUN
from rota.cli.target import Target, with_target
from rota.cli.waits import signals
from rota.errors import RunNotFound

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.database import Database


@click.command()
@with_target
@click.argument("run", type=RUN)
@click.argument("name")
@click.argument("payload", metavar="[JSON]", default="null")
def signal(target: Target, run: int, name: str, payload: str) -> None:
    """Tell RUN something: what ctx.wait(NAME) in its code is given, now or when it comes there.

    JSON is what is said: `true`, `'"yes"'`, `'{"by": "Ada"}'`; null unless given, and - is stdin. The first
    signal of a NAME stands, for good.
    """
    document = read_json(payload, f"{payload!r:.60}", "; text goes into quotes: '\"yes\"'")

    async def sending(app: Rota) -> None:
        from rota.engine.deeds import act
        from rota.model import codec
        from rota.model.durably import check_label
        from rota.store.audit import Deed
        from rota.store.signals import send

        check_label("signal", name)
        # As a program's would be: what JSON or PostgreSQL cannot hold, and what is too large, is refused.
        text = codec.encode(document, f"the payload of signal {name!r}", app.settings.payload_limit)
        database = (await app.open()).database
        answer = await act(
            database,
            send(run, name, text),
            Deed(whom.operator(), "signal run", str(run), {"signal": name}),
            did=lambda answer: answer == "sent",
            repeats=True,
        )
        whole = await _run_of(database, run)
        match answer:
            case "sent":
                click.echo(f"signal {name!r} was sent to run {whole}")
                await _tell_of_nobody(database, whole, name)
            case "known":
                raise Told(
                    f"run {whole} was sent signal {name!r} before, and the first one stands; `rota show "
                    f"{whole}` says what that was",
                    NOT_THERE,
                )
            case "ended":
                raise Told(f"run {whole} has ended already, so nobody hears it", NOT_THERE)
            case _:
                raise RunNotFound(f"there is no run {run}; `rota runs` lists those there are")

    target.ask(sending)


async def _run_of(database: Database, id: int) -> int:
    """The run, also of a job of one."""
    from rota.store import views

    found = await database.one(views.run(id))
    return id if found is None else found.run


async def _tell_of_nobody(database: Database, run: int, name: str) -> None:
    """A misspelt name is kept as well as another: better say so where nobody waits for it."""
    from rota.store import timeline

    waited = {each.name for each in await database.run(timeline.waits(run)) if each.kind == "wait"}
    # Who waited may have heard it by now, and gone on.
    heard = {each.name for each in await database.run(timeline.signals(run)) if each.jobs}
    if name not in waited | heard and waited:
        note(f"nothing waits for it yet; the run waits for {signals(sorted(waited))}")
