"""A statement that the server refuses."""

from __future__ import annotations

from support.stage import Stage


async def refuse(stage: Stage, job: int) -> None:
    """Make every insert of this job into `queued` fail."""
    await stage.sql(
        "create function public.refuse() returns trigger language plpgsql as"
        f" $$ begin if new.job = {job} then raise 'not this one'; end if; return new; end $$"
    )
    await stage.sql(
        "create trigger refuse before insert on rota.queued"
        " for each row execute function public.refuse()"
    )
