"""For tests of programs that use Rota, and for our own.

    async def test_a_picture_is_resized(rota_harness):
        resize = rota_harness.app.task(pictures.resize)
        run = await resize.start(path="a.png")

        await rota_harness.run_until_idle()

        assert await run.result() == "a.100.png"

That happens in a real PostgreSQL, in a database that is made for the test and dropped after it: there is no
second engine in memory that could behave otherwise. What a durable function comes to, whatever crashes and
however long it sleeps, is tested without any:

    async def test_a_customer_is_asked_after_a_week():
        result = await simulate(onboard, user=42)

        assert result.steps == ["welcome", "ask"]
        assert result.slept == timedelta(days=7)

`rota.testing.plugin` has the fixtures, docs/guides/testing.md the whole story.
"""

from rota.testing.clock import NotThrowaway, SettableClock
from rota.testing.events import EventNotSeen, EventRecorder
from rota.testing.harness import Harness
from rota.testing.proxy.proxy import Proxy
from rota.testing.simulate import crash_everywhere, simulate
from rota.testing.simulated_result import SimulatedResult
from rota.testing.until_idle import NotIdle, run_until_idle, until_idle

__all__ = [
    "EventNotSeen",
    "EventRecorder",
    "Harness",
    "NotIdle",
    "NotThrowaway",
    "Proxy",
    "SettableClock",
    "SimulatedResult",
    "crash_everywhere",
    "run_until_idle",
    "simulate",
    "until_idle",
]
