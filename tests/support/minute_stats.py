"""Workers' counts of past minutes, written as workers write them."""

from __future__ import annotations

import psycopg

TALLY = """
insert into rota.minute_stats (
       minute, queue, task, worker, claimed, returned, succeeded, failed, cancelled, expired, skipped,
       quarantined, retried, suspended, attempts, seconds, max_seconds, wait_count, wait_seconds,
              max_wait_seconds)
select date_trunc('minute', rota.clock()) - %(ago)s * interval '1 minute', %(queue)s, %(task)s, 0,
       %(succeeded)s + %(failed)s, 0, %(succeeded)s, %(failed)s, 0, 0, 0, 0, %(retried)s, 0,
       %(succeeded)s + %(failed)s, %(took)s, %(longest)s, 1, %(waited)s, %(waited)s
"""

SAMPLE = """
insert into rota.queue_samples (minute, queue, queued, oldest_seconds, seq)
select date_trunc('minute', rota.clock()) - %s * interval '1 minute', %s, %s, 0, 1
"""


def insert_minute_stats(
    dsn: str,
    queue: str,
    task: str,
    ago: int,
    *,
    succeeded: int = 0,
    failed: int = 0,
    retried: int = 0,
    took: float = 0.0,
    longest: float = 0.0,
    waited: float = 0.0,
) -> None:
    """Insert the counts of the minute that was `ago` minutes ago."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            TALLY,
            {
                "queue": queue,
                "task": task,
                "ago": ago,
                "succeeded": succeeded,
                "failed": failed,
                "retried": retried,
                "took": took,
                "longest": longest,
                "waited": waited,
            },
        )


def insert_queue_sample(dsn: str, queue: str, ago: int, ready: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SAMPLE, (ago, queue, ready))
