"""Onboarding of a customer: steps that run once, a week's sleep without a worker, an awaited signal.

python examples/onboarding.py                               one program; the week takes two seconds
cd examples && rota worker onboarding:app                   or a worker in one terminal,
cd examples && rota start -a onboarding:app onboard mail=ada@example.org week=60
rota show 1; rota signal 1 confirmed true                   inspect and signal the run from another

Kill the worker at any time and start it again: no completed step is repeated.
"""

import asyncio

from rota import Context, Retry, Rota

app = Rota("local")  # the embedded PostgreSQL; Rota() uses ROTA_DATABASE_URL

WEEK = 7 * 24 * 60 * 60.0


async def open_account(ctx: Context, mail: str) -> int:
    """Insert the account and complete the step in one commit, so that no second row is inserted."""
    async with ctx.transaction() as connection:
        added = await connection.execute(
            "insert into accounts (mail) values (%s) returning id", (mail,)
        )
        [account] = await added.fetchone() or [0]
    return int(account)


def send(mail: str, text: str) -> None:
    """Send a mail. A plain function runs in a thread, and runs again if its worker dies during the call."""
    print(f"to {mail}: {text}")


@app.task
async def onboard(ctx: Context, mail: str, week: float = WEEK) -> str:
    account = await ctx.step("account", open_account, ctx, mail)
    retried = ctx.options(retry=Retry(max_attempts=5, delay=60))
    await retried.step("welcome", send, mail, f"welcome, you are number {account}")

    ctx.progress(1, 2, "sleeps for a week")
    await ctx.sleep(week)

    ctx.progress(2, 2, "waits for the confirmation")
    confirmed = await ctx.wait_signal("confirmed", bool, timeout=week, default=False)
    if not confirmed:
        await retried.step("reminder", send, mail, "are you still there?")
    return f"{mail} {'stays' if confirmed else 'may come back'}"


@app.task
async def prepare(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute(
            "create table if not exists accounts "
            "(id bigint generated always as identity primary key, mail text not null)"
        )
        ctx.complete()


async def main(week: float = 2) -> None:
    async with app, app.worker():
        await (await prepare.start()).result(timeout=30)
        ada = await onboard.start(mail="ada@example.org", week=week)
        bob = await onboard.start(mail="bob@example.org", week=week)
        await ada.signal("confirmed", True)  # can be sent before the run waits for it
        print(await ada.result(timeout=30))
        print(await bob.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
