"""First program of the tutorial: a task, a worker and a result."""

# [all]
import asyncio

from rota import Rota

app = Rota("local")  # the embedded PostgreSQL, started on first use


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with app, app.worker():  # a worker inside this program
        run = await greet.start(name="Ada")  # durable when this returns
        print(await run.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
# [/all]
