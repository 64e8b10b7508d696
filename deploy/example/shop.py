"""Small shop for the deployments in this directory: an API that accepts orders, and a task for each order.

Replace it with your application: workers run the jobs of `shop:app`, web instances serve `shop:api`.
"""

from __future__ import annotations

from fastapi import FastAPI

from rota import Rota

app = Rota()
api = FastAPI(lifespan=app.lifespan)


@app.task
async def confirm(order: int) -> str:
    return f"order {order} is confirmed"


@api.post("/orders/{order}", status_code=202)
async def place(order: int) -> dict[str, int]:
    """Accept an order. A repeated request returns the same run."""
    run = await confirm.options(key=f"order:{order}").start(order=order)
    return {"run": run.id}
