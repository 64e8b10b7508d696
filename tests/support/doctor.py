"""The doctor's results for a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from rota.engine.diagnosis.doctor import run_checks
from rota.model.check_result import CheckResult
from rota.model.settings import Settings
from rota.store.database import Database


def now() -> datetime:
    return datetime.now(UTC)


class Doctor:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    async def look(
        self,
        *,
        now: Callable[[], datetime] = now,
        dsn: str | None = None,
        direct: str | None = None,
        schema: str = "rota",
    ) -> list[CheckResult]:
        database = Database(dsn or self.dsn, Settings(schema=schema), direct)
        try:
            return [each async for each in run_checks(database, now)]
        finally:
            await database.close()

    async def finds(self, check: str, **how: object) -> list[CheckResult]:
        """Return the results of one check."""
        return [each for each in await self.look(**how) if each.check == check]  # type: ignore[arg-type]

    async def one(self, check: str, **how: object) -> CheckResult:
        [found] = await self.finds(check, **how)
        return found
