"""Schedules for the tests of the command line."""

from __future__ import annotations

from rota import Rota

app = Rota()


@app.task
async def report(day: str = "today") -> str:
    return day


etl = app.flow("etl")


@etl.task
async def extract(day: str) -> str:
    return day


@app.action("mail")
async def mail(to: str) -> None: ...
