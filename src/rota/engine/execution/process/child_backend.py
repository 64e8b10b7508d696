"""Backend of the context of an isolated task: sends requests to the `JobBackend` in the worker.

Operations that need objects of the worker (child calls, transactions, durable functions) raise an error.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any, NoReturn

import msgspec

from rota import errors
from rota.engine.execution.process.messages import FromProcess, Reply, Request
from rota.errors import RotaError
from rota.model.context import BoundCall, Failure
from rota.model.outcome import Outcome

REPLY_TYPES: dict[str, Any] = {
    "failures": list[Failure],
    "checkpoint": Any,
    "fence": int,
    "progress": Any,
    "log": Any,
}
"""Methods that a child process may request, and the type of each reply."""


class ChildBackend:
    def __init__(self, attempt_id: int, send: Callable[[FromProcess], None]) -> None:
        self._attempt_id = attempt_id
        self._send = send
        self._request_ids = count()
        self._pending: dict[int, Future[bytes]] = {}
        self._lock = threading.Lock()
        self._is_interrupted = False
        self.draining = False
        self.is_durable = False
        self.forced_outcome: Outcome | None = None

    async def end(self) -> None:
        """Do nothing: isolated tasks have no journal."""

    # Requests to the worker

    async def failures(self) -> list[Failure]:
        found: list[Failure] = await self._request("failures")
        return found

    async def checkpoint(self, state: str) -> None:
        await self._request("checkpoint", state)

    async def fence(self) -> int:
        token: int = await self._request("fence")
        return token

    def progress(self, done: float, total: float | None, note: str | None) -> None:
        self._notify_worker("progress", done, total, note)

    def log(self, message: str) -> None:
        self._notify_worker("log", message)

    def _notify_worker(self, method: str, *arguments: Any) -> None:
        """Send a request without waiting for the reply."""
        with self._lock:
            request_id = next(self._request_ids)
        self._send(Request(self._attempt_id, request_id, method, msgspec.json.encode(arguments)))

    async def _request(self, method: str, *arguments: Any) -> Any:
        answer: Future[bytes] = Future()
        with self._lock:
            request_id = next(self._request_ids)
            self._pending[request_id] = answer
            if self._is_interrupted:
                answer.cancel()
        try:
            if not answer.cancelled():
                self._send(
                    Request(self._attempt_id, request_id, method, msgspec.json.encode(arguments))
                )
            value = await asyncio.wrap_future(answer)
        finally:
            with self._lock:
                del self._pending[request_id]
        return msgspec.json.decode(value, type=REPLY_TYPES[method])

    def on_reply(self, reply: Reply) -> None:
        """Deliver a reply. Runs in the receiving thread."""
        with self._lock:
            answer = self._pending.get(reply.request_id)
            if answer is None or not answer.set_running_or_notify_cancel():
                return
        if reply.error_type:
            answer.set_exception(_error_from(reply))
        else:
            answer.set_result(reply.value)

    # Waiting

    def run_sync(self, coroutine: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(coroutine)
        coroutine.close()
        raise RuntimeError("ctx.sync would stop the loop it is called in; async code awaits")

    def interrupt(self) -> None:
        with self._lock:
            self._is_interrupted = True
            pending = list(self._pending.values())
        for each in pending:
            each.cancel()

    # Not supported in a child process

    async def run_children(
        self,
        number: int,
        calls: Sequence[BoundCall[Any]],
        concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]:
        refuse("ctx.map and ctx.run")

    def transaction(self) -> NoReturn:
        refuse("ctx.transaction")

    def sync_transaction(self) -> NoReturn:
        refuse("ctx.transaction")

    def complete(self, result: Any) -> NoReturn:
        refuse("ctx.complete")

    @property
    def durable(self) -> NoReturn:
        refuse("ctx.step, ctx.sleep and the like")


def refuse(feature: str) -> NoReturn:
    raise RotaError(
        f'{feature} cannot be used by a task with isolation="process": its process has no way to '
        "do that. Do "
        "it in a task without, which runs this one"
    )


def _error_from(reply: Reply) -> Exception:
    """Return the worker's error, with its type if that is one of Rota's."""
    kind = getattr(errors, reply.error_type, None)
    if isinstance(kind, type) and issubclass(kind, RotaError):
        return kind(reply.error)
    return RotaError(f"{reply.error_type}: {reply.error}")
