"""Dashboard mounted in a FastAPI application, as in the guide.

rota serve mounted:api                                      then open /rota/
"""

# [mounted]
from fastapi import FastAPI

from rota import Rota
from rota.web.site import ALL_PARTS, site

app = Rota()


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


api = FastAPI(lifespan=app.lifespan)
api.mount("/rota", site(app, parts=ALL_PARTS))  # pages at /rota/, the API at /rota/api/v1
# [/mounted]

# [looking]
looking = FastAPI(lifespan=app.lifespan.options(worker=False))
looking.mount("/rota", site(app, parts=ALL_PARTS, read_only=True))
# [/looking]
