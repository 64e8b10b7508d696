"""`make bench-guard BASE=commit`: compare the cost per job of this tree with that of a commit.

Both variants run on one server, in interleaved pairs. Compared are

    counts   statements, round trips, row versions and WAL bytes per job; a rise fails
    CPU      microseconds per job of client and server, median of the pairs' ratios; more than 5 % fails

    variants    the two trees, each with its own benchmark programs
    server      the PostgreSQL server, its CPU time and its counters
    wire        a proxy that counts statements and round trips
    workloads   bulk, single, drain, latency
    verdict     the comparison, and the table that is printed
"""
