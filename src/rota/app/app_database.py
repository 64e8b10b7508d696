"""Database of an app: its DSN, its embedded server, and one client per event loop.

The driver and the client are imported on first use, because importing an app must stay fast.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from rota.errors import RotaError
from rota.model.settings import database_url, direct_url

if TYPE_CHECKING:
    import asyncio

    from rota.app.client import Client
    from rota.localpg import LocalPostgres

LOCAL = "local"


class AppDatabase:
    """Database of one app. Nothing is opened before the first call of `open`."""

    def __init__(
        self,
        dsn: str | None,
        direct: str | None,
        create_client: Callable[[str, str | None], Client],
    ) -> None:
        self.dsn = self._original_dsn = dsn
        self._direct = direct
        self._create_client = create_client
        self._lock = threading.Lock()
        self._local: LocalPostgres | None = None
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

    async def open(self) -> Client:
        """Return the client of this event loop; open it if necessary."""
        import asyncio

        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            from rota.store.migrate import migrate

            client = self._create_client(*await asyncio.to_thread(self.find))
            if self._local is not None:
                # The embedded database has no operator, so it is migrated here.
                await migrate(client.database)
            client = self._clients.setdefault(loop, client)
        return client

    def current_client(self) -> Client | None:
        """Return the client of this event loop if it is open, else None."""
        import asyncio

        return self._clients.get(asyncio.get_running_loop())

    def switch(self, dsn: str | None) -> str | None:
        """Use another database from now on, and return the previous DSN. Raise RotaError if connections are
        open."""
        if self._clients:
            raise RotaError(
                "this app has open connections; close it before it uses another database"
            )
        dsn, self.dsn = self.dsn, dsn
        return dsn

    def find(self) -> tuple[str, str | None]:
        """Return the DSN, and the direct URL if there is one. Start the embedded server if necessary."""
        with self._lock:
            if self.dsn is None:
                self.dsn = self._original_dsn = database_url()
            if self.dsn == LOCAL:
                from rota.localpg import LocalPostgres

                self._local = LocalPostgres()
                self.dsn = self._local.start()
            # The direct URL belongs to the original database only.
            direct = (self._direct or direct_url()) if self.dsn == self._original_dsn else None
            return self.dsn, direct

    async def close(self) -> None:
        """Close the client of this event loop, and after the last one the embedded server."""
        import asyncio

        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        if self._local is not None and not self._clients:
            local, self._local, self.dsn = self._local, None, LOCAL
            await asyncio.to_thread(local.stop)
