"""python -m tests.chaos --seconds 60 --seed 7 --faults kill,freeze

Exits with 1 if an invariant was violated, or if a phase did not see its intended events.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from . import report
from .mutants import MUTANTS
from .phase_run import FaultNotPermitted, PhaseRun, Result
from .phases import FULL, PHASES
from .server import Server


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos")
    parser.add_argument(
        "--seconds", type=float, default=FULL, help="of faults, all phases together"
    )
    parser.add_argument("--seed", default=None, help="replays the same schedule of faults")
    parser.add_argument("--faults", default=None, help=f"of {', '.join(PHASES)}; default: all")
    parser.add_argument("--mutants", default=None, help="instead: known mistakes, all or M1,M7,…")
    parser.add_argument("--keep", action="store_true", help="keep histories of a run that passed")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> list[Result]:
    names = (
        options.faults.split(",") if options.faults else [n for n, p in PHASES.items() if p.share]
    )
    seed = options.seed or secrets.token_hex(4)
    base = Path(tempfile.mkdtemp(prefix="rota-chaos-"))
    shares = sum(PHASES[name].share for name in names) or 1.0
    full = options.seconds >= FULL and options.faults is None
    print(f"seed {seed}, {options.seconds:g} s of {', '.join(names)}; histories in {base}")
    server = Server()
    await server.open()
    results = []
    try:
        for name in names:
            phase = PHASES[name]
            seconds = options.seconds * (phase.share or 1.0) / shares
            began = time.monotonic()
            stage = PhaseRun(server, phase, f"{seed}:{name}", base / name)
            try:
                results.append(await stage.run(seconds, full=full))
            except FaultNotPermitted as error:
                print(f"{name:8} left out: {error}")
                continue
            if sys.stderr.isatty():
                print(file=sys.stderr)
            print(report.table(results[-1:]), f"({time.monotonic() - began:.0f} s)", flush=True)
    finally:
        await server.close()
        if not options.keep and results and all(result.passed for result in results):
            shutil.rmtree(base, ignore_errors=True)
    return results


async def run_mutants(options: argparse.Namespace) -> bool:
    """Run the given mutants one after the other. Return True if all were found."""
    names = MUTANTS if options.mutants == "all" else options.mutants.split(",")
    seed = options.seed or secrets.token_hex(4)
    base = Path(tempfile.mkdtemp(prefix="rota-mutants-"))
    server = Server()
    await server.open()
    missed = []
    try:
        for name in names:
            mutant = MUTANTS[name]
            for switch in (None, name):
                began = time.monotonic()
                phase = mutant.phase if switch else replace(mutant.phase, quiet_within=60.0)
                stage = PhaseRun(
                    server,
                    phase,
                    f"{seed}:{name}",
                    base / (switch or f"{name}-control"),
                    mutant=switch,
                    settings=mutant.settings,
                )
                result = await stage.run(mutant.seconds)
                found = {violation.invariant for violation in result.violations}
                took = time.monotonic() - began
                print(f"{name} {'mutant ' if switch else 'control'} {sorted(found)} ({took:.0f} s)")
                for violation in result.violations[:3]:
                    print(f"      {violation}")
                if bool(found & mutant.found_by) is not bool(switch):
                    missed.append(f"{name}{'' if switch else ' control'}")
    finally:
        await server.close()
    print(f"seed {seed}: {'missed ' + ', '.join(missed) if missed else 'all found'}; {base}")
    return not missed


def main() -> int:
    options = parse()
    if options.mutants:
        return 0 if asyncio.run(run_mutants(options)) else 1
    results = asyncio.run(run(options))
    print(report.format_totals(results))
    passed = all(result.passed for result in results)
    print("passed" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
