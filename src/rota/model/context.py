"""What a task may know about the job it runs: `async def resize(ctx: Context, …)`."""

from __future__ import annotations


class Context:
    """One attempt at one job."""

    __slots__ = ("_cancelled", "attempt", "job", "queue", "run", "task")

    def __init__(self, job: int, run: int, task: str, queue: str, attempt: int) -> None:
        self.job = job
        self.run = run
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants this job to stop. Async code is cancelled; code in a thread asks here."""
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True
