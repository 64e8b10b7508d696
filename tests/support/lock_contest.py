"""Contest for one lock between processes that are frozen past its TTL or lose it to an operator.

Their logs are compared with the audit tables in the database. These properties are checked:

    tokens rise     each hold has a larger token than every earlier one, and so have the writes under it
    alone           no two bodies have writes under the fence that overlap in time
    told            no body left its block without a report that another holder had taken the lock
    told in time    a holder that lost the lock to an operator got the report by the next renewal
    believed        no process reported the lock as held while another process already held it
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from chaos import history
from chaos.history import Line
from support import lock_mutants as mutants
from support.places import TESTS
from support.programs.lock_contender import NAME

SLACK = 0.5
"""Seconds that a busy machine may delay a process."""

AUDIT = """
create table public.effects (
    id bigint generated always as identity, token bigint, pid int, began float8, ended float8,
    largest bigint);
create table public.holds (
    id bigint generated always as identity, at float8, token bigint, what text, by uuid);
create function public.note() returns trigger language plpgsql as $$ begin
    if tg_op <> 'INSERT' and old.instance is not null then
        if tg_op = 'DELETE' or (new.instance is null and new.token = old.token) then
            insert into public.holds (at, token, what)
            values (extract(epoch from clock_timestamp()), old.token, 'given back');
        elsif new.token <> old.token then
            insert into public.holds (at, token, what)
            values (extract(epoch from clock_timestamp()), old.token,
                    case when new.instance is null then 'taken away' else 'taken over' end);
        end if;
    end if;
    if tg_op <> 'DELETE' and new.instance is not null
       and (tg_op = 'INSERT' or new.token <> old.token or old.instance is null) then
        insert into public.holds (at, token, what, by)
        values (extract(epoch from clock_timestamp()), new.token, 'taken', new.instance);
    end if;
    return null;
end $$;
create trigger note after insert or update or delete on rota.locks
    for each row execute function public.note()
"""


@dataclass(frozen=True, slots=True)
class Stop:
    pid: int
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class Effect:
    token: int
    began: float
    ended: float
    largest: int | None
    """Largest token of all writes that were committed before this one."""


@dataclass(slots=True)
class Contest:
    """Logs of the processes and audit rows of one contest, with the checks on them."""

    ttl: float
    lines: list[Line] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    holds: list[tuple[float, int, str]] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """Return how often each event happened.

        A contest in which one is missing proves nothing about it.
        """
        seen = Counter(line.what for line in self.lines)
        ends = Counter(what for _, _, what in self.holds)
        return Counter(
            {
                "acquisitions": seen["acquired"],
                "effects": len(self.effects),
                "losses told": seen["told"],
                "refused": seen["refused"],
                "taken over": ends["taken over"],
                "taken away": ends["taken away"],
                "stops": len(self.stops),
            }
        )

    def violations(self) -> set[str]:
        return {each.split(":", 1)[0] for each in self.said()}

    def said(self) -> list[str]:
        return [
            *self._tokens(),
            *self._overlaps(),
            *self._untold(),
            *self._told_late(),
            *self._believed(),
        ]

    def _tokens(self) -> Iterator[str]:
        taken = [token for _, token, what in self.holds if what == "taken"]
        for one, two in pairwise(taken):
            if two <= one:
                yield f"tokens rise: {two} was drawn after {one}"
        doubled = [
            token
            for token, times in Counter(
                line.said["token"] for line in self.lines if line.what == "acquired"
            ).items()
            if times > 1
        ]
        for token in doubled:
            yield f"tokens rise: {token} was had twice"
        for effect in self.effects:
            if effect.largest is not None and effect.largest > effect.token:
                yield f"tokens rise: something was done under {effect.token} after {effect.largest}"

    def _overlaps(self) -> Iterator[str]:
        for one, two in pairwise(sorted(self.effects, key=lambda each: each.began)):
            if one.token != two.token and two.began < one.ended:
                yield f"alone: {two.token} began {one.ended - two.began:.3f} s before {one.token} ended"

    def _untold(self) -> Iterator[str]:
        passed = {token for _, token, what in self.holds if what.startswith("taken ")}
        for line in self.lines:
            if line.what == "left" and line.said["token"] in passed:
                yield f"told: {line.who} left its block and does not know that {line.said['token']} passed"

    def _told_late(self) -> Iterator[str]:
        pids = {line.who: line.said["pid"] for line in self.lines if line.what == "up"}
        robbed = {token: at for at, token, what in self.holds if what == "taken away"}
        heard = {line.said["token"]: line.at for line in self.lines if line.what == "forfeited"}
        for line in self.lines:
            token = line.said.get("token")
            if line.what not in ("told", "left") or token not in robbed:
                continue
            due = robbed[token] + self.ttl / 2 + SLACK
            due += sum(
                max(min(stop.ends, line.at) - max(stop.begins, robbed[token]), 0.0)
                for stop in self.stops
                if stop.pid == pids[line.who]
            )
            if line.at > due and heard.get(token, line.at + 1) > due:
                yield (
                    f"told in time: {token} was taken away {line.at - robbed[token]:.2f} s before its "
                    "block was left, and nobody said so"
                )

    def _believed(self) -> Iterator[str]:
        passed = {token: at for at, token, what in self.holds if what == "taken over"}
        for line in self.lines:
            if line.what == "believed":
                late = line.said["until"] - passed.get(line.said["token"], line.said["until"])
                if late > 0:
                    yield (
                        f"believed: {line.who} believed in {line.said['token']} {late:.3f} s after it "
                        "had passed"
                    )


async def contest(
    dsn: str,
    directory: Path,
    *,
    seconds: float,
    ttl: float,
    seed: str,
    mutant: str = "",
    count: int = 6,
) -> Contest:
    """Run a contest and collect its logs and audit rows."""
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else goes on yet
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as db:
        await db.execute(AUDIT.encode())
        if mutant:
            await mutants.prepare(mutant, dsn)
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "support.programs.lock_contender",
                dsn,
                str(directory),
                str(count),
            ),
            *(str(seconds), str(ttl), seed, mutant),
            cwd=TESTS,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            pids = [int(pid) for pid in (await process.stdout.readline()).split()]
            robbed = mutants.MUTANTS[mutant].robbed if mutant else 0.2
            stops = await _disturb(db, pids, seconds, ttl, robbed, random.Random(seed))
            async with asyncio.timeout(20 + 5 * ttl):
                code = await process.wait()
            assert code == 0, "a contender failed"
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        effects = await db.execute(
            "select token, began, ended, largest from public.effects order by id"
        )
        holds = await db.execute("select at, token, what from public.holds order by id")
        return Contest(
            ttl,
            history.read(directory),
            [Effect(*row) for row in await effects.fetchall()],
            [(at, token, what) for at, token, what in await holds.fetchall()],
            stops,
        )


async def _disturb(
    db: psycopg.AsyncConnection[Any],
    pids: list[int],
    seconds: float,
    ttl: float,
    robbed: float,
    chance: random.Random,
) -> list[Stop]:
    """Mostly stop the holder, sometimes another process, and now and then release the lock by force."""
    until = time.monotonic() + seconds
    stops: list[Stop] = []
    stopping: set[asyncio.Task[None]] = set()

    async def stop(pid: int) -> None:
        begins = time.time()
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(1.2, 2.2) * ttl)
        os.kill(pid, signal.SIGCONT)
        stops.append(Stop(pid, begins, time.time()))

    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(0.2, 0.6) * ttl)
        found = await (
            await db.execute(
                "select pid from rota.locks where name = %s and instance is not null", (NAME,)
            )
        ).fetchall()
        holder, what = (found[0][0] if found else None), chance.random()
        stopped = {task.get_name() for task in stopping}
        if holder is not None and what < robbed and str(holder) not in stopped:
            with suppress(psycopg.errors.LockNotAvailable):  # a transaction has asserted it
                await db.execute("select rota.release_lock(%s, 0, 'driver')", (NAME,))
            continue
        pid = holder if holder is not None and what < 0.8 else chance.choice(pids)
        if str(pid) not in stopped and len(stopped) < len(pids) - 2:
            task = asyncio.create_task(stop(pid), name=str(pid))
            stopping.add(task)
            task.add_done_callback(stopping.discard)
    if stopping:
        await asyncio.wait(stopping)
    return stops
