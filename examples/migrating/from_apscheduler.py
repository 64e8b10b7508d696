"""Code of the guide to migrating from APScheduler. Tests run it."""

# [declared]
from datetime import datetime

from rota import Context, Retry, Rota

app = Rota()


@app.schedule("0 7 * * mon-fri", tz="Europe/Paris", grace=3600, catch_up="latest", overlap="skip")
@app.task(retry=Retry(max_attempts=3), timeout=600)
def morning_report(ctx: Context) -> str:
    return f"report for {ctx.scheduled_for:%Y-%m-%d}"


@app.schedule(every=30, jitter=5)
@app.task
async def poll_feed() -> None:
    seen.append("feed")


# [/declared]
seen: list[str] = []


# [once]
@app.task
async def remind(user: int, text: str) -> str:
    seen.append(f"{user}: {text}")
    return text


async def remind_me(user: int, when: datetime, text: str) -> int:
    # "open": the key is free again after the run has ended
    once = remind.options(at=when, key=f"reminder-{user}", unique="open")
    run = await once.start(user, text)
    return run.id  # cancel it with `await app.run(id).cancel()`


# [/once]


# [runtime]
@app.task
async def digest(customer: int) -> str:
    seen.append(f"digest for {customer}")
    return f"digest for {customer}"


async def subscribe(customer: int, zone: str) -> None:
    await app.schedules.create(
        f"digest-{customer}",
        digest,
        cron="0 8 * * mon",
        tz=zone,
        input={"customer": customer},
        tenant=str(customer),
    )


async def pause_digest(customer: int) -> None:
    await app.schedules.pause(f"digest-{customer}", "on holiday")


async def resume_digest(customer: int) -> None:
    await app.schedules.resume(f"digest-{customer}")


async def unsubscribe(customer: int) -> None:
    await app.schedules.delete(f"digest-{customer}")


# [/runtime]
