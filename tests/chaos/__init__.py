"""Real worker processes, broken in every way we know, and a checker that says whether anything went wrong.

    python -m tests.chaos --seconds 60 --faults kill,freeze --seed 7

Each phase has one kind of fault: a time of faults, a quiet time in which everything has to finish, and the
checker. What it reads is the database's own record (`audit`), and what each process noted (`history`).
A run that did not see what it is about (`phases`: no stale completion, say) does not count.
"""
