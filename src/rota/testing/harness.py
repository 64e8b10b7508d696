"""An app under test, with everything a test wants to do to it.

    async with Harness(app, dsn) as harness:
        run = await send_welcome.start(user=1)
        await harness.run_until_idle()
        await harness.clock.advance(timedelta(days=7))
        await harness.saw(JobFinished, job=run.id)

Given a DSN, the app works there for the length of the block, so that the app your tasks are registered
with, the one your program uses, is the one that is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rota.model.events import Event
from rota.testing.clock import SettableClock
from rota.testing.events import EventRecorder
from rota.testing.until_idle import run_until_idle

if TYPE_CHECKING:
    from rota.app import Rota

E = TypeVar("E", bound=Event)


class Harness:
    """An app in a test's database, for as long as the block lasts, with a clock to set and events to wait
    for: `async with Harness(app, rota_dsn) as harness`. `harness.app` is the app, `harness.clock` the
    clock."""

    def __init__(self, app: Rota, dsn: str | None = None) -> None:
        self.app = app
        self.clock = SettableClock(app)
        self._dsn = dsn

    async def __aenter__(self) -> Self:
        if self._dsn is not None:
            # Ours while the block lasts, the app's own in the meantime.
            self._dsn = self.app.switch_database(self._dsn)
            self._switched = True
        else:
            self._switched = False
        self._recorder = EventRecorder(self.app)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._recorder.close()
        await self.app.close()
        if self._switched:
            self._dsn = self.app.switch_database(self._dsn)

    @property
    def events(self) -> Sequence[Event]:
        """What the app's workers have announced since the block began."""
        return self._recorder.events

    async def wait_for_event(
        self, kind: type[E], /, *, timeout: float = 10.0, **expected: Any
    ) -> E:
        """The first event of this kind with these fields since the block began, once there is one."""
        return await self._recorder.wait_for_event(kind, timeout=timeout, **expected)

    async def run_until_idle(
        self,
        *,
        timeout: float = 10.0,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Run a worker until no job is ready, running or due; raise NotIdle after `timeout`."""
        await run_until_idle(self.app, timeout=timeout, queues=queues, concurrency=concurrency)
