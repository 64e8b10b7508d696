"""Tools for tests of programs that use Rota, and for Rota's own tests.

    async def test_a_picture_is_resized(rota_harness):
        resize = rota_harness.app.task(pictures.resize)
        run = await resize.start(path="a.png")

        await rota_harness.run_until_idle()

        assert await run.result() == "a.100.png"

This test runs in a real PostgreSQL, in a database that is created for the test and dropped after it. There
is no second, in-memory engine that could behave differently. The result of a durable function, with crashes
and sleeps of any length, can be tested without a database:

    async def test_a_customer_is_asked_after_a_week():
        result = await simulate(onboard, user=42)

        assert result.steps == ["welcome", "ask"]
        assert result.slept == timedelta(days=7)

`rota.testing.plugin` has the fixtures; docs/guides/testing.md is the guide.
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
