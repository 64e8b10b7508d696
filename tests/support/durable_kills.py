"""Workers that are killed at one await of a durable function, and checks of the steps' effects."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from rota import Rota
from support.fleet import wait_for_row
from support.places import PROGRAMS
from support.programs.durable_app import EARLY, LATE, WRITES, define

APP = PROGRAMS / "durable_app.py"
AT_ONCE = 4
TABLE = "create table effects (job bigint, step int, value text, token text)"


class WorkerForker:
    """Process that forks workers which kill themselves at given places."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._reading = asyncio.create_task(self._read())

    async def run(self, **order: Any) -> int:
        """Fork a process with these orders; return its exit status."""
        number = next(self._numbers)
        gone = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._say({"number": number, **order})
        code: int = await gone
        return code

    def end(self) -> None:
        self._say({"end": True})

    def _say(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            self._waiting.pop(said["number"]).set_result(said["code"])

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading


@asynccontextmanager
async def worker_forker() -> AsyncIterator[WorkerForker]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(APP), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    one = WorkerForker(process)
    try:
        yield one
    finally:
        await one.close()


@dataclass(slots=True)
class StoredState:
    """Stored state of a job: effects by step, and recorded steps."""

    written: dict[int, list[str]] = field(default_factory=dict)
    noted: dict[int, list[str]] = field(default_factory=dict)
    kept: dict[int, str] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)


class KillTrial:
    """Jobs whose workers are killed at different places."""

    def __init__(self, dsn: str, directory: Path, task: str, steps: int, mutant: str = "") -> None:
        self.dsn = dsn
        self.steps = steps
        self.mutant = mutant
        self.task = task
        self._directory = directory
        self.jobs: dict[int, str] = {}
        """Code path and place of the kill, by job."""
        self.unreached: set[int] = set()

    async def run(self, places: dict[str, range]) -> dict[int, StoredState]:
        """Kill all workers; return the state left when the last one was dead."""
        async with Rota(self.dsn) as app, worker_forker() as forks:
            tasks = define(app)
            task = {"ten": tasks[0], "threaded": tasks[1]}[self.task]
            async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as asks:
                await asks.execute(TABLE)
            saying = asyncio.create_task(self._say_late())
            try:
                for line, each in places.items():
                    await self._kill_along(forks, task, line, each)
                left = await self.look()
                await self._finish(forks)
            finally:
                saying.cancel()
                await asyncio.gather(saying, return_exceptions=True)
        return left

    async def _kill_along(self, forks: WorkerForker, task: Any, line: str, places: range) -> None:
        """Kill workers place after place, until a job ends before it reaches its place."""
        ahead = iter(places)
        over = False

        async def kill_some() -> None:
            nonlocal over
            while not over and (place := next(ahead, None)) is not None:
                queue = f"{line}-{place}"
                run = await task.options(queue=queue).start(self.steps)
                await run.signal("early", "so early")
                code = await forks.run(line=line, place=place, **self._order([queue], queue))
                if code == 0:
                    over = True
                    self.unreached.add(run.id)
                else:
                    assert code == -9, f"{queue} ended with {code}"
                    self.jobs[run.id] = queue

        await asyncio.gather(*(kill_some() for _ in range(AT_ONCE)))
        assert over, f"{line} has more places than were tried"

    async def _finish(self, forks: WorkerForker) -> None:
        """Run a surviving worker until it has finished the jobs that the killed workers left."""
        queues = [*self.jobs.values()]
        order = self._order(queues, "finish")
        living = asyncio.create_task(forks.run(**order))
        ended = f"select count(*) from rota.outcomes where job = any('{{{_list(self.jobs)}}}')"
        await wait_for_row(self.dsn, ended, (len(self.jobs),), within=60)
        forks.end()
        assert await living == 0

    def _order(self, queues: list[str], notes: str) -> dict[str, Any]:
        file = str(self._directory / f"notes-{notes}")
        return {"dsn": self.dsn, "queues": queues, "notes": file, "mutant": self.mutant}

    async def _say_late(self) -> None:
        """Send the signal that jobs wait for, once they wait."""
        statement = (
            "select rota.signal(job, 'late', to_json('so late'::text))"
            " from rota.sleeping where signals is not null"
        )
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as asks:
            while True:
                await asks.execute(statement.encode())
                await asyncio.sleep(0.05)

    async def look(self) -> dict[int, StoredState]:
        """Return the stored state of all jobs whose workers were killed."""
        found = {job: StoredState() for job in self.jobs}
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as asks:
            effects = await asks.execute("select job, step, value, token from effects")
            for job, step, value, token in await effects.fetchall():
                if job in found:
                    found[job].written.setdefault(step, []).append(value)
                    found[job].tokens.add(token)
            kept = await asks.execute(
                "select job, name, result::text from rota.steps where kind = 'step' and not open"
            )
            for job, name, result in await kept.fetchall():
                if job in found:
                    found[job].kept[int(name.split()[1])] = json.loads(result)
        for file in sorted(self._directory.glob("notes-*"), key=_is_finishing_worker):
            for line in file.read_text().splitlines():
                job, step, value, token = line.split()
                if int(job) in found:
                    found[int(job)].noted.setdefault(int(step), []).append(value)
                    found[int(job)].tokens.add(token)
        return found

    async def ends(self) -> dict[int, tuple[str, int, int, list[str]]]:
        """Return state, attempt, number of lost workers and result of each job."""
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as asks:
            found = await asks.execute(
                "select job, state::text, attempt, result::text,"
                " (select count(*)::int from rota.attempts where attempts.job = outcomes.job"
                "     and attempts.error ->> 'type' = 'rota.errors.WorkerLost')"
                " from rota.outcomes where job = any(%s)",
                (list(self.jobs),),
            )
            return {
                job: (state, attempt, lost, json.loads(result or "[]"))
                for job, state, attempt, result, lost in await found.fetchall()
            }

    async def faults(self, left: dict[int, StoredState]) -> list[str]:
        """Return all differences from the expected state."""
        ends, after = await self.ends(), await self.look()
        return [
            f"{where}: {fault}"
            for job, where in self.jobs.items()
            for fault in errors_of_job(where, self.steps, left[job], after[job], *ends[job])
        ]


def errors_of_job(
    where: str,
    steps: int,
    left: StoredState,
    after: StoredState,
    state: str,
    attempt: int,
    lost: int,
    result: list[str],
) -> Iterator[str]:
    """Yield the errors of a job, from its state after the kill, its state now and its outcome."""
    wanted = list(range(steps))
    if state != "succeeded" or len(result) != 1 + steps + (steps > EARLY) + (steps > LATE):
        yield f"{state} with {result}"
        return
    token, *values = result
    if steps > LATE and values.pop(LATE + 2) != "so late":
        yield f"heard {result}"
    if steps > EARLY and values.pop(EARLY + 1) != "so early":
        yield f"heard {result}"
    if after.tokens != {token}:
        yield f"was told {after.tokens}, and came to {token}"
    if sorted(after.kept) != wanted or left.kept.items() - after.kept.items():
        yield f"kept {left.kept}, then {after.kept}"
    for step in wanted:
        if after.kept[step] != values[step]:
            yield f"step {step} was kept as {after.kept[step]}, and the code was given {values[step]}"
        if step in WRITES:
            if (step in left.written) != (step in left.kept):
                yield f"step {step}: written {step in left.written}, kept {step in left.kept}"
            for each in (step, -5) if step == 5 else (step,):
                if after.written.get(each) != [values[step]]:
                    yield f"step {step} came to {values[step]} and wrote {after.written.get(each)}"
        else:
            noted = after.noted.get(step, [])
            repeated = step in left.noted and step not in left.kept
            if len(noted) != 1 + repeated or noted[-1] != values[step]:
                yield f"step {step} came to {values[step]}, and did {noted}"
    # The loss of a worker counts as an attempt only if the job was running, not sleeping or finished.
    if attempt != 1 + lost or lost > 1 or (where.startswith("own") and lost == 0):
        yield f"attempt {attempt} after {lost} workers were lost with it"


def _is_finishing_worker(notes: Path) -> bool:
    return notes.name == "notes-finish"


def _list(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))
