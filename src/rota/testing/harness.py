"""Test harness for an app.

    async with Harness(app, dsn) as harness:
        run = await send_welcome.start(user=1)
        await harness.run_until_idle()
        await harness.clock.advance(timedelta(days=7))
        await harness.wait_for_event(JobFinished, job=run.id)

With a DSN, the app uses that database for the duration of the block. The tested app is then the one of the
program, with the tasks registered there.
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
    """An app in a test database, with a settable clock and recorded events.

    Use it as a context manager: `async with Harness(app, rota_dsn) as harness`. `harness.app` is the app,
    `harness.clock` the clock.
    """

    def __init__(self, app: Rota, dsn: str | None = None) -> None:
        self.app = app
        self.clock = SettableClock(app)
        self._dsn = dsn

    async def __aenter__(self) -> Self:
        if self._dsn is not None:
            # Swap the two DSNs: `_dsn` holds the app's own one for the duration of the block.
            self._dsn = self.app.database.switch(self._dsn)
            self._switched = True
        else:
            self._switched = False
        self._recorder = EventRecorder(self.app)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._recorder.close()
        await self.app.close()
        if self._switched:
            self._dsn = self.app.database.switch(self._dsn)

    @property
    def events(self) -> Sequence[Event]:
        """Events published by the app's workers since the block began."""
        return self._recorder.events

    async def wait_for_event(
        self, kind: type[E], /, *, timeout: float = 30.0, **expected: Any
    ) -> E:
        """Return the first event of this kind with these field values since the block began, waiting if
        necessary.
        """
        return await self._recorder.wait_for_event(kind, timeout=timeout, **expected)

    async def run_until_idle(
        self,
        *,
        timeout: float = 30.0,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Run a worker until no job is queued, running or due. Raise NotIdle after `timeout` seconds."""
        await run_until_idle(self.app, timeout=timeout, queues=queues, concurrency=concurrency)
