"""For tests of programs that use Rota, and for our own.

    async def test_a_picture_is_resized(rota_harness):
        resize = rota_harness.app.task(pictures.resize)
        run = await resize.start(path="a.png")

        await rota_harness.run_until_idle()

        assert await run.result() == "a.100.png"

Everything happens in a real PostgreSQL, in a database that is made for the test and dropped after it:
there is no second engine in memory that could behave otherwise. `rota.testing.plugin` has the fixtures,
docs/testing.md the whole story.
"""

from rota.testing.clock import Clock, NotThrowaway
from rota.testing.harness import Harness
from rota.testing.idle import NotIdle, run_until_idle, until_idle
from rota.testing.proxy import Proxy
from rota.testing.witness import NotSeen, Witness

__all__ = [
    "Clock",
    "Harness",
    "NotIdle",
    "NotSeen",
    "NotThrowaway",
    "Proxy",
    "Witness",
    "run_until_idle",
    "until_idle",
]
