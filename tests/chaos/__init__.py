"""Chaos tests: real worker processes, injected faults of every known kind, and a checker of invariants.

    python -m tests.chaos --seconds 60 --faults kill,freeze --seed 7

Each phase has one kind of fault: a period of faults, a quiet period in which all jobs must finish, and the
checker. The checker reads the database's own record (`audit`) and the notes of each process (`history`). A
phase that did not see its intended events (`phases`; for example no stale completion) does not count.
"""
