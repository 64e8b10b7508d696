"""`app.queues`: pause and resume queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.engine.audited import run_audited_query
from rota.errors import ArgumentError
from rota.model import codec
from rota.store import queues
from rota.store.audit import AuditEntry
from rota.store.queues import PauseRow

if TYPE_CHECKING:
    from rota.app.rota import Rota

MAX_NAME_CHARS = 200
MAX_REASON_CHARS = 1000


class Queues:
    """Queue operations of an app, `app.queues`."""

    def __init__(self, app: Rota) -> None:
        self._app = app

    async def pause(self, queue: str, reason: str = "", *, by: str | None = None) -> bool:
        """Stop all workers from claiming jobs of the queue. Return True if it was not paused before.

        Running jobs continue; queued jobs wait. `by` names the operator in the audit log, here and below.
        """
        _check("queue", queue, 1, MAX_NAME_CHARS)
        _check("reason", reason, 0, MAX_REASON_CHARS)
        return await run_audited_query(
            (await self._app.open()).database,
            queues.pause(queue, by or "", reason),
            None
            if by is None
            else AuditEntry(by, "pause queue", queue, {"reason": reason} if reason else {}),
            was_done=bool,
            is_idempotent=True,
        )

    async def resume(self, queue: str, *, by: str | None = None) -> bool:
        """Let workers claim jobs of the queue again. Return True if it was paused."""
        _check("queue", queue, 1, MAX_NAME_CHARS)
        client = await self._app.open()
        resumed = await run_audited_query(
            client.database,
            queues.resume(queue),
            None if by is None else AuditEntry(by, "resume queue", queue),
            was_done=bool,
            is_idempotent=True,
        )
        client.notifier.notify([queue])
        return resumed

    async def paused(self) -> list[PauseRow]:
        """Return the paused queues by name."""
        return await (await self._app.open()).database.run_with_retry(queues.list_paused())


def _check(field: str, text: str, min_chars: int, max_chars: int) -> None:
    if (text or min_chars) and not codec.is_storable(text, max_chars):
        raise ArgumentError(f"{field} has {min_chars} to {max_chars} letters, not {text!r:.60}")
