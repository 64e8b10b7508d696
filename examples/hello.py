"""The smallest app: two tasks, a worker, a few jobs.

python examples/hello.py                                    worker and jobs in one program
cd examples && rota worker hello:app                        or a worker in one terminal
cd examples && rota start -a hello:app hello name=Ada       and jobs from another
"""

import asyncio

from rota import Retry, Rota

app = Rota("local")  # the embedded PostgreSQL; Rota() uses ROTA_DATABASE_URL


@app.task
async def hello(name: str) -> str:
    return f"Hello, {name}!"


@app.task(queue="sums", retry=Retry(max_attempts=5))
def add(numbers: list[int]) -> int:  # a plain function runs in a thread
    return sum(numbers)


async def main() -> None:
    async with app, app.worker():
        runs = [await hello.start(name=name) for name in ("Ada", "Grace", "Katherine")]
        total = await add.start(numbers=[1, 2, 3])
        for run in runs:
            print(await run.result(timeout=30))
        print("1 + 2 + 3 =", await total.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
