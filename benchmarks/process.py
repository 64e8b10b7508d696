"""Process of one contender: commands and answers are lines, each with a timeout.

A process is ended through its own handle: by closing its stdin, then by SIGTERM, then by SIGKILL. Its
stderr is shown only if it failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Answer = dict[str, Any]


class ChildFailed(RuntimeError):
    """The process ended or did not answer in time."""


class Child:
    """Process of a contender: `with Child(...) as child: child.ask("migrate", within=60)`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        boot: float = 30,
    ) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 – lives as long as the child; see end
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **environment},
        )
        self._answers: queue.Queue[Answer | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.pid = int(self._next(time.monotonic() + boot)["pid"])
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def poll(self, within: float) -> Answer | None:
        """Return the next line, or None if there is none in time."""
        try:
            answer = self._answers.get(timeout=within)
        except queue.Empty:
            return None
        if answer is None:
            raise ChildFailed(f"{self.name} ended before it answered{self.complaint()}")
        return answer

    def _next(self, deadline: float) -> Answer:
        answer = self.poll(max(0.0, deadline - time.monotonic()))
        if answer is None:
            raise ChildFailed(f"{self.name} gave no answer in time{self.complaint()}")
        return answer

    def complaint(self) -> str:
        """Return the end of its stderr."""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return f":\n{text[-4000:]}" if text else ""

    def tell(self, verb: str, **parameters: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": verb, **parameters}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChildFailed(f"{self.name} has ended{self.complaint()}") from None

    def answers(self, within: float) -> Iterator[Answer]:
        """Yield every line as it arrives, until the caller stops."""
        deadline = time.monotonic() + within
        while True:
            yield self._next(deadline)

    def until(self, key: str, within: float) -> Answer:
        """Return the next answer that has `key`; skip all other answers (counts)."""
        return next(answer for answer in self.answers(within) if key in answer)

    def ask(self, verb: str, within: float, **parameters: object) -> Answer:
        self.tell(verb, **parameters)
        return self.until("done", within)

    def kill(self) -> int:
        """Kill the process; return the time of the kill."""
        at = time.monotonic_ns()
        self._process.kill()
        self._process.wait()
        return at

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self, patience: float = 10) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for harsher in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                harsher()
        self._process.wait()
        self._reader.join(patience)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
