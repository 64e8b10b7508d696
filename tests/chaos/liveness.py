"""Invariants of progress, and no living worker is declared dead: I14, I16, I17 and I18."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from .evidence import Evidence, Violation, WorkerStateChange

DEADLY = ("kill", "freeze", "drop", "half_open", "oom", "exit")
"""Faults after which a worker may be declared dead. Only one side notices a half-open connection."""

BREAKS = ("cut", "reset", "terminate", "hold", "crash")

SLACK = 1.5
"""Seconds that a busy machine may delay a process."""

IDLE_FOR = 2.0
ENGINE_FOR = 1.0


def drained(evidence: Evidence) -> Iterator[Violation]:
    """I14: a draining worker claims no job, leaves none behind, is not declared dead and exits with 0."""
    workers = {each.pid for each in evidence.presence}
    for each in evidence.ended:
        if each.drained and each.code != 0 and each.pid in workers:
            yield Violation(
                "I14", f"process {each.pid} was asked to leave and ended with {each.code}"
            )
    leaving = {each.worker: each.at for each in evidence.presence if each.state == "draining"}
    left = {each.worker for each in evidence.presence if each.state == "stopped"}
    held: dict[int, set[int]] = {}
    for move in evidence.moves:
        if move.place != "claim" or move.worker not in leaving:
            continue
        if move.enters:
            late = move.began - leaving[move.worker]
            if late > SLACK:
                yield Violation(
                    "I14", f"worker {move.worker} took job {move.job} {late:.1f} s after it drained"
                )
            held.setdefault(move.worker, set()).add(move.job)
        else:
            held.setdefault(move.worker, set()).discard(move.job)
    for worker in sorted(left & held.keys()):
        if held[worker]:
            yield Violation("I14", f"worker {worker} left with {len(held[worker])} jobs in hand")


def no_live_worker_declared_dead(evidence: Evidence) -> Iterator[Violation]:
    """I18: only a worker that was killed, frozen or cut off is declared dead.

    An outage of the database or a drain is no reason. A machine too busy for heartbeats is one and is
    reported separately.
    """
    for each in evidence.presence:
        if each.state == "dead" and not reasons(evidence, each):
            yield Violation(
                "I18", f"worker {each.worker} (process {each.pid}) was declared dead, and it lived"
            )


def reasons(evidence: Evidence, death: WorkerStateChange) -> set[str]:
    """Return the faults that may have silenced a worker."""
    found = set()
    broken = busy = False
    silent_since = death.at - evidence.dead_after - SLACK
    for fault in evidence.faults:
        if fault.pid not in (death.pid, None) or fault.at > death.at:
            continue
        if fault.kind in DEADLY:
            found.add(fault.kind)
        if fault.until < silent_since:
            continue
        broken |= fault.kind in BREAKS
        busy |= fault.kind == "busy"
        if fault.kind == "starved" and fault.until - fault.at > evidence.dead_after / 4:
            found.add("starved")
    # A process that gets to run reconnects within a second.
    return found | ({"starved"} if broken and busy else set())


def taken_back_jobs_stop(evidence: Evidence) -> Iterator[Violation]:
    """I5: a worker stops code of a job that was taken back within a heartbeat of its waking."""
    died: defaultdict[int, list[float]] = defaultdict(list)
    for each in evidence.presence:
        if each.state == "dead":
            died[each.pid].append(each.at)
    pids = {line.who: line.said["pid"] for line in evidence.lines if line.what == "up"}
    begun: dict[tuple[str, int], float] = {}
    for line in evidence.lines:
        if line.what == "invoke":
            begun[(line.who, line.job)] = line.at
        elif line.what == "tick":
            began, pid = begun[(line.who, line.job)], pids[line.who]
            for at in died[pid]:
                if not began < at < line.at:
                    continue
                late = line.at - _time_of_waking(evidence, pid, at)
                if late > 2 * evidence.beat + SLACK:
                    yield Violation(
                        "I5",
                        f"{line.who} still ran job {line.job} {late:.1f} s after it could know that "
                        "it had been taken away",
                    )
                    return


def _time_of_waking(evidence: Evidence, pid: int, died: float) -> float:
    """Return when a process that was declared dead ran again and could notice it."""
    ends = [
        fault.until
        for fault in evidence.faults
        if fault.pid in (pid, None) and fault.at <= died <= fault.until
    ]
    return max(ends, default=died)


def no_deadlocks(evidence: Evidence) -> Iterator[Violation]:
    """I16: there are no deadlocks, and no transaction that begins after the faults stays open for long."""
    if evidence.deadlocks:
        yield Violation("I16", f"{evidence.deadlocks} deadlocks")
    for sample in evidence.samples:
        began = sample.at - sample.age
        most = IDLE_FOR if sample.state.startswith("idle in transaction") else ENGINE_FOR
        if sample.age > most and began > evidence.quiet_at and not _starved(evidence, began):
            yield Violation(
                "I16", f"a transaction {sample.state} for {sample.age:.1f} s: {sample.query[:80]!r}"
            )


def _starved(evidence: Evidence, since: float) -> bool:
    """True if the machine was overloaded."""
    return any(fault.kind == "starved" and fault.until > since for fault in evidence.faults)


def quiet_in_time(evidence: Evidence) -> Iterator[Violation]:
    """I17: after the faults everything finishes in time, no rows remain, and every process is active."""
    if evidence.quiet_took > evidence.quiet_within:
        left = ", ".join(f"{count} {place}" for place, count in evidence.left.items() if count)
        yield Violation("I17", f"not quiet within {evidence.quiet_within:g} s: {left}")
    for place, count in evidence.left.items():
        if count and evidence.quiet_took <= evidence.quiet_within:
            yield Violation("I17", f"{count} left in {place}")
    state: dict[int, str] = {}
    for each in evidence.presence:
        state[each.worker] = each.state
    pids = {each.worker: each.pid for each in evidence.presence}
    working = {pids[worker] for worker, now in state.items() if now in ("active", "draining")}
    working |= {pids[worker] for worker, now in state.items() if now == "stopped"}
    for slot, pid in evidence.crew.items():
        if pid not in working:
            yield Violation("I17", f"process {pid} (place {slot}) runs, and is no worker")


def recoveries(evidence: Evidence) -> dict[int, list[float]]:
    """Return, by killed process, the seconds until another worker claimed each of its jobs."""
    pids = {each.worker: each.pid for each in evidence.presence}
    kills = {
        fault.pid: fault.at
        for fault in evidence.faults
        if fault.kind == "kill" and fault.pid is not None
    }
    lost: dict[int, int] = {}
    found: defaultdict[int, list[float]] = defaultdict(list)
    for move in evidence.moves:
        if move.place != "claim" or move.worker is None:
            continue
        if move.enters:
            victim = lost.pop(move.job, None)
            if victim is not None:
                found[victim].append(move.at - kills[victim])
        else:
            pid = pids.get(move.worker)
            if pid in kills and move.at > kills[pid]:
                lost[move.job] = pid
    return found


def recovered_in_time(evidence: Evidence) -> Iterator[Violation]:
    """I18: in 99 of 100 cases a job of a killed worker is claimed elsewhere within the target.

    Only its first job counts: the remaining jobs are suspects and are claimed one by one.
    """
    if evidence.recovery_target is None:
        return
    found = [min(times) for times in recoveries(evidence).values()]
    if found and (worst := percentile(found, 99)) > evidence.recovery_target:
        yield Violation(
            "I18",
            f"p99 of {len(found)} recoveries is {worst:.1f} s, over {evidence.recovery_target:g} s",
        )


def percentile(values: Sequence[float], of_100: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * of_100 // 100)]


CHECKS = (
    drained,
    no_live_worker_declared_dead,
    taken_back_jobs_stop,
    no_deadlocks,
    quiet_in_time,
    recovered_in_time,
)
