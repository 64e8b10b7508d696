"""An app whose tasks log in a coroutine, in a thread and in an isolated process."""

from __future__ import annotations

import logging

from rota import Context, Retry, Rota

app = Rota()
log = logging.getLogger("shop.orders")


@app.task
async def awaited(card: str) -> str:
    log.info("awaited")
    return card


@app.task
def threaded(card: str) -> str:
    log.info("threaded")
    return card


@app.task(isolation="process")
def isolated(ctx: Context, card: str) -> str:
    log.info("isolated")
    log.debug("not to be seen")
    return card


@app.task(retry=Retry(max_attempts=1))
async def failing(card: str) -> None:
    try:
        raise ValueError("it was declined")
    except ValueError:
        log.exception("caught")
    raise PermissionError("the card was refused")
