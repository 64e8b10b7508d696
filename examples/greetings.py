"""API that starts jobs, with a worker in the same process, and a drain that load balancers detect.

pip install 'pgrota[web]' fastapi
cd examples && rota serve greetings:api                     then, in another terminal:
curl -X POST localhost:8000/greetings/Ada                   starts a run, and returns its id
curl localhost:8000/greetings/1                             its state and result
curl -i localhost:8000/health/ready                         after Ctrl-C in the first terminal: 503 for
                                                            ten seconds, while it continues to serve
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, HTTPException

from rota import Rota, RunFailed
from rota.errors import RunNotFound
from rota.web.health import health

app = Rota("local")  # the embedded PostgreSQL; Rota() uses ROTA_DATABASE_URL


@app.task
async def greet(name: str) -> str:
    await asyncio.sleep(1)  # stands for work that takes time
    return f"hello, {name}"


api = FastAPI(lifespan=app.lifespan)


@api.post("/greetings/{name}", status_code=202)
async def start(name: str) -> dict[str, int]:
    run = await greet.start(name)
    return {"run": run.id}


@api.get("/greetings/{id}")
async def show(id: int) -> dict[str, Any]:
    try:
        return {"greeting": await app.run(id).result(timeout=5)}
    except RunNotFound:
        raise HTTPException(404, "there is no such run") from None
    except (RunFailed, TimeoutError) as error:
        raise HTTPException(503, str(error)) from None


api.mount("/", health(app))  # last, because "/" matches every path
