"""A small shop, for the deployments in this directory: an API that takes orders, and a task for each.

Your own takes its place: `shop:app` is the app whose jobs workers run, `shop:api` what is served.
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
    """Take an order. Sent twice, it is taken once."""
    run = await confirm.options(key=f"order:{order}").start(order=order)
    return {"run": run.id}
