"""How the context of an isolated task reaches its worker: by questions, answered there by the job's port.

What would need the worker's own objects (calls of other tasks, a transaction) is refused with a reason.
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
from rota.engine.frames import Ask, FromProcess, Reply
from rota.errors import RotaError
from rota.model.context import CallOf, Failure
from rota.model.outcome import Outcome

ANSWERS: dict[str, Any] = {
    "failures": list[Failure],
    "checkpoint": Any,
    "fence": int,
    "progress": Any,
    "say": Any,
}
"""What may be asked, and what is answered."""


class ChildPort:
    def __init__(self, number: int, send: Callable[[FromProcess], None]) -> None:
        self._number = number
        self._send = send
        self._questions = count()
        self._open: dict[int, Future[bytes]] = {}
        self._changing = threading.Lock()
        self._is_interrupted = False
        self.draining = False
        self.is_durable = False
        self.fate: Outcome | None = None

    async def end(self) -> None:
        """There is nothing to be kept."""

    # What the worker does

    async def failures(self) -> list[Failure]:
        found: list[Failure] = await self._ask("failures")
        return found

    async def checkpoint(self, state: str) -> None:
        await self._ask("checkpoint", state)

    async def fence(self) -> int:
        token: int = await self._ask("fence")
        return token

    def progress(self, done: float, total: float | None, note: str | None) -> None:
        self._tell("progress", done, total, note)

    def say(self, message: str) -> None:
        self._tell("say", message)

    def _tell(self, method: str, *arguments: Any) -> None:
        """Ask without waiting for an answer."""
        with self._changing:
            question = next(self._questions)
        self._send(Ask(self._number, question, method, msgspec.json.encode(arguments)))

    async def _ask(self, method: str, *arguments: Any) -> Any:
        answer: Future[bytes] = Future()
        with self._changing:
            question = next(self._questions)
            self._open[question] = answer
            if self._is_interrupted:
                answer.cancel()
        try:
            if not answer.cancelled():
                self._send(Ask(self._number, question, method, msgspec.json.encode(arguments)))
            value = await asyncio.wrap_future(answer)
        finally:
            with self._changing:
                del self._open[question]
        return msgspec.json.decode(value, type=ANSWERS[method])

    def hear(self, reply: Reply) -> None:
        """In the thread that hears."""
        with self._changing:
            answer = self._open.get(reply.question)
            if answer is None or not answer.set_running_or_notify_cancel():
                return
        if reply.kind:
            answer.set_exception(_error(reply))
        else:
            answer.set_result(reply.value)

    # What only waits

    def block(self, waiting: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(waiting)
        waiting.close()
        raise RuntimeError("ctx.blocking would stop the loop it is called in; async code awaits")

    def interrupt(self) -> None:
        with self._changing:
            self._is_interrupted = True
            pending = list(self._open.values())
        for each in pending:
            each.cancel()

    # What is not to be had

    async def call(
        self, number: int, calls: Sequence[CallOf[Any]], limit: int | None, collect: bool
    ) -> list[Any]:
        refuse("ctx.map and ctx.run")

    def transaction(self) -> NoReturn:
        refuse("ctx.transaction")

    def blocking_transaction(self) -> NoReturn:
        refuse("ctx.transaction")

    def complete(self, value: Any) -> NoReturn:
        refuse("ctx.complete")

    @property
    def durable(self) -> NoReturn:
        refuse("ctx.step, ctx.sleep and the like")


def refuse(what: str) -> NoReturn:
    raise RotaError(
        f'{what} cannot be used by a task with isolation="process": its process has no way to do that. Do '
        "it in a task without, which runs this one"
    )


def _error(reply: Reply) -> Exception:
    """The worker's error, of the same type if it is one of Rota's."""
    kind = getattr(errors, reply.kind, None)
    if isinstance(kind, type) and issubclass(kind, RotaError):
        return kind(reply.error)
    return RotaError(f"{reply.kind}: {reply.error}")
