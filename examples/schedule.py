"""Schedules: declared in code, created at run time, triggered manually, inspected.

python examples/schedule.py                                 one program; runs for a few seconds
cd examples && rota worker schedule:app                     or one or more workers: one run per tick
cd examples && rota schedules -a schedule:app
cd examples && rota schedules show heartbeat -a schedule:app
"""

import asyncio
from datetime import timedelta

from rota import Context, Rota

app = Rota("local")  # the embedded PostgreSQL; Rota() uses ROTA_DATABASE_URL


@app.schedule("0 7 * * mon-fri", tz="Europe/Paris", input={"day": "today"})
@app.task
async def report(day: str) -> str:
    return f"the report of {day}"


@app.schedule(every=1, overlap="allow")
@app.task
async def heartbeat(ctx: Context) -> None:
    assert ctx.scheduled_for is not None
    print("tick", ctx.scheduled_for.isoformat(timespec="seconds"))


@app.action("greet")
async def greet(name: str) -> None:
    print(f"hello, {name}")


async def main() -> None:
    async with app, app.worker():
        # Schedules of users are rows: an action of the app, and its config.
        await app.schedules.create(
            "greet-ada", action="greet", config={"name": "Ada"}, every=timedelta(days=7)
        )
        await app.schedules.trigger("greet-ada")
        print(await (await app.schedules.trigger("report")).result(timeout=30))

        await asyncio.sleep(4)  # heartbeat ticks meanwhile

        for schedule in await app.schedules.list():
            print(f"{schedule.name}: {schedule.when}, {schedule.runs} scheduled runs")
        await app.schedules.delete("greet-ada")


if __name__ == "__main__":
    asyncio.run(main())
