"""Worker processes of a run, each in a slot that is filled again when it becomes vacant."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .evidence import Fault, ProcessExit

ROOT = Path(__file__).resolve().parents[(__package__ or "").count(".") + 1]
"""Directory from which this package can be imported under its name."""


@dataclass(slots=True)
class WorkerProcess:
    pid: int
    slot: int
    number: int
    frozen: bool = False
    leaving: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class WorkerProcesses:
    def __init__(
        self,
        directory: Path,
        dsn: Callable[[int], str],
        settings: dict[str, Any],
        *,
        mutant: str | None = None,
    ) -> None:
        self._directory = directory
        self._dsn = dsn
        self._settings = settings
        self._mutant = mutant
        self._zygote: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._births: dict[tuple[int, int], asyncio.Future[int]] = {}
        self._members: dict[int, WorkerProcess] = {}
        self._slots: dict[int, WorkerProcess] = {}
        self._numbers: dict[int, int] = {}
        self._vacant: dict[int, float] = {}
        self._keeping: asyncio.Task[None] | None = None
        self.ended: list[ProcessExit] = []
        self.faults: list[Fault] = []
        self.groups: dict[int, str] = {}
        """Control groups by slot; members start in them."""

    async def open(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ROTA_")
        }
        path = (str(ROOT), os.environ.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self._zygote = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"{__package__}.zygote",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        """End all members now."""
        await self.keep_no_more()
        if self._zygote is None or self._zygote.stdin is None:
            return
        self._zygote.stdin.close()
        await self._zygote.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        assert self._zygote is not None
        assert self._zygote.stdout is not None
        while line := await self._zygote.stdout.readline():
            said = json.loads(line)
            if "born" in said:
                birth = self._births.pop((said["slot"], said["number"]))
                if not birth.done():  # the run is over and no caller waits any more
                    birth.set_result(said["born"])
                member = WorkerProcess(said["born"], said["slot"], said["number"])
                self._members[member.pid] = self._slots[member.slot] = member
            else:
                self._bury(said["gone"], said["code"])

    def _bury(self, pid: int, code: int) -> None:
        member = self._members.pop(pid)
        now = time.time()
        self.ended.append(ProcessExit(pid, member.slot, now, code, member.leaving))
        if code != 0:
            # Killed or crashed: its jobs must continue on another worker.
            self.faults.append(Fault("exit", now - 0.1, now, pid, member.slot))
        if self._slots.get(member.slot) is member:
            del self._slots[member.slot]
        member.gone.set()

    # -- members

    @property
    def pids(self) -> dict[int, int]:
        return {slot: member.pid for slot, member in self._slots.items()}

    def at(self, slot: int) -> WorkerProcess | None:
        return self._slots.get(slot)

    async def start(self, slot: int) -> int:
        """Start a member in this slot."""
        assert self._zygote is not None
        assert self._zygote.stdin is not None
        number = self._numbers[slot] = self._numbers.get(slot, 0) + 1
        born: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._births[(slot, number)] = born
        order = {
            "slot": slot,
            "number": number,
            "dsn": self._dsn(slot),
            "directory": str(self._directory),
            "settings": self._settings,
            "mutant": self._mutant,
            "group": self.groups.get(slot),
        }
        self._zygote.stdin.write(json.dumps(order).encode() + b"\n")
        return await born

    def keep(self, size: int) -> None:
        """Fill these slots, and fill a slot again whenever it becomes vacant."""
        self._keeping = asyncio.create_task(self._keep(size))

    async def _keep(self, size: int) -> None:
        while True:
            now = time.monotonic()
            for slot in range(size):
                if slot not in self._slots and self._vacant.get(slot, 0.0) <= now:
                    await self.start(slot)
            await asyncio.sleep(0.02)

    async def keep_no_more(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
            self._keeping = None

    # -- faults

    def kill(self, slot: int, vacant: float = 0.0) -> int | None:
        """Kill a process; its slot stays vacant for `vacant` seconds."""
        member = self._slots.pop(slot, None)
        if member is None:
            return None
        self._vacant[slot] = time.monotonic() + vacant
        now = time.time()
        if self._signal(member, signal.SIGKILL):
            self.faults.append(Fault("kill", now, now, member.pid, slot))
            return member.pid
        return None

    async def freeze(self, slot: int, seconds: float) -> int | None:
        """Stop a process for a while, then continue it."""
        member = self._slots.get(slot)
        if member is None or member.frozen:
            return None
        member.frozen = True
        began = time.time()
        self._signal(member, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._signal(member, signal.SIGCONT)
        member.frozen = False
        self.faults.append(Fault("freeze", began, time.time(), member.pid, slot))
        return member.pid

    async def drain(self, slot: int, within: float) -> bool | None:
        """Ask a process to drain. Return True if it exited in time."""
        member = self._slots.pop(slot, None)
        if member is None:
            return None
        member.leaving = True
        self._vacant[slot] = time.monotonic() + within
        self._signal(member, signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                await member.gone.wait()
        except TimeoutError:
            self._signal(member, signal.SIGKILL)
            await member.gone.wait()
            return False
        finally:
            self._vacant[slot] = 0.0
        return True

    async def drain_all(self, within: float) -> list[bool | None]:
        return await asyncio.gather(*(self.drain(slot, within) for slot in list(self._slots)))

    def _signal(self, member: WorkerProcess, number: signal.Signals) -> bool:
        if member.gone.is_set():
            return False
        with suppress(ProcessLookupError):
            os.kill(member.pid, number)
            return True
        return False
