"""Apps with services: one has only services, one also a task, and one a service that does not stop."""

import threading

from rota import Rota

app = Rota()
both = Rota()
stubborn = Rota()


@app.service("filings", every=0.1)
async def filings() -> None: ...


@app.service("prices", every=0.1)
def prices() -> None: ...


@both.task
async def nothing() -> None: ...


both.service("filings", every=0.1)(filings)


@stubborn.service("stubborn", forever=True)
def stay() -> None:
    threading.Event().wait()
