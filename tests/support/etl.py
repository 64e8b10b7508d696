"""The ETL example with its workers, and its tables."""

from __future__ import annotations

from collections.abc import Callable

from support.example_programs import Program, Programs

DAY, FILES, SALES = "2026-11-15", 12, 50
CENTS = 1_517_691
"""Total of that day's files, each read once."""

APP = "examples.etl.app:app"
Make = Callable[..., Programs]


class Etl:
    """Workers of the flow, and one run."""

    def __init__(self, programs: Programs, app: str = APP) -> None:
        self.programs = programs
        self._app = app
        self.workers: list[Program] = []
        self.run = programs.run("rota", "start", "-a", APP, "etl", f"day={DAY}").strip()

    def start(self, count: int, **environment: str) -> None:
        words = ("rota", "worker", self._app, "--log-level", "warning")
        self.workers += [self.programs.start(*words, **environment) for _ in range(count)]

    def state(self, task: str) -> list[str]:
        """Return the states of the run's job, or of all child jobs of this task."""
        found = self.programs.rows(
            "select state::text from rota.job_state where task = %s order by job", task
        )
        return [state for (state,) in found]

    def until(self, task: str, state: str) -> None:
        self.programs.until(lambda: state in self.state(task))

    def staged(self) -> dict[str, int]:
        found = self.programs.rows("select file, count(*) from staged group by file")
        return dict(found)

    def sum_of(self, table: str) -> int:
        [(cents,)] = self.programs.rows(f"select coalesce(sum(cents), 0)::bigint from {table}")
        return int(cents)

    def kill_all(self) -> None:
        for each in self.workers:
            if each.lives:
                each.kill()

    def ends(self) -> None:
        told = "select state::text from rota.run_state where run = %s"
        self.programs.until(lambda: self.programs.rows(told, self.run) == [("succeeded",)])
