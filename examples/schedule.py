"""Schedules: declared in code, created at run time, triggered manually, inspected.

python examples/schedule.py                                 a few seconds of it in one program
cd examples && rota worker schedule:app                     or a worker in one terminal, or in several:
cd examples && rota schedules -a schedule:app               each tick starts one run all the same
cd examples && rota schedules show heartbeat -a schedule:app
"""

import asyncio
from datetime import timedelta

from rota import Context, Rota

app = Rota("local")  # the embedded PostgreSQL; Rota() takes the one that ROTA_DATABASE_URL names


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
        # Users' schedules are rows: an action that the app knows, and its config.
        await app.schedules.create(
            "greet-ada", action="greet", config={"name": "Ada"}, every=timedelta(days=7)
        )
        await app.schedules.trigger("greet-ada")
        print(await (await app.schedules.trigger("report")).result(timeout=30))

        await asyncio.sleep(4)  # ticks run meanwhile

        for schedule in await app.schedules.list():
            print(f"{schedule.name}: {schedule.when}, {schedule.runs} runs by the clock")
        await app.schedules.delete("greet-ada")


if __name__ == "__main__":
    asyncio.run(main())
