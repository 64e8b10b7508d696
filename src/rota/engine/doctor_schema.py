"""The schema: whether it is the one this Rota works with, and whether its tables and indexes are well."""

from __future__ import annotations

from rota.engine.charts import CheckContext
from rota.model.checkup import CheckResult, format_duration, format_size, level_for
from rota.store import doctor, migrate

NOTICE_DEAD_ROWS, PROBLEM_DEAD_ROWS = 20_000, 500_000
"""Rows that are gone and in the way, beside at least as many that are there."""


async def check_schema(context: CheckContext) -> list[CheckResult]:
    applied = await migrate.applied(context.database)
    behind = [each for each in migrate.migrations() if each.version not in applied]
    newer = [each for each in applied if each > migrate.newest_version()]
    name = f"schema {context.schema!r}"
    if not applied:
        message = f"{name} has not got Rota's tables"
        return [CheckResult("schema", "problem", message, 0, "migrations", "rota db migrate")]
    if newer:
        message = f"{name} was made by a newer Rota: it has migration {max(newer):04d}"
        fix = "pip install --upgrade rota"
        return [CheckResult("schema", "problem", message, max(newer), "migrations", fix)]
    if behind:
        message = f"{name} is {len(behind)} migration(s) behind this Rota"
        return [
            CheckResult("schema", "problem", message, len(behind), "migrations", "rota db migrate")
        ]
    message = f"{name} has all {len(applied)} migrations"
    return [CheckResult("schema", "ok", message, len(applied), "migrations")]


async def check_dead_rows(context: CheckContext) -> list[CheckResult]:
    tables = await context.fetch(doctor.tables(context.schema))
    # A queue at speed has so many within a minute, and is well as long as autovacuum comes for them.
    recent_seconds = 2 * (await context.fetch_one(doctor.autovacuum())).naptime_seconds
    results = []
    for each in tables:
        if each.dead_rows < NOTICE_DEAD_ROWS or each.dead_rows < each.live_rows:
            continue
        if each.vacuumed_seconds_ago is not None and each.vacuumed_seconds_ago <= recent_seconds:
            continue
        ago = (
            "never"
            if each.vacuumed_seconds_ago is None
            else f"{format_duration(each.vacuumed_seconds_ago)} ago"
        )
        table = f"{context.schema}.{each.name}"
        message = (
            f"{table} has {each.dead_rows:,} rows that are gone beside {each.live_rows:,} that "
            "are there, and "
            f"{format_size(each.bytes)}; it was last vacuumed {ago}"
        )
        level = level_for(each.dead_rows, NOTICE_DEAD_ROWS, PROBLEM_DEAD_ROWS)
        results.append(
            CheckResult(
                "dead rows", level, message, each.dead_rows, "rows", f"vacuum (analyze) {table};"
            )
        )
    if results:
        return results
    max_dead = max((each.dead_rows for each in tables), default=0)
    message = f"no table has more than {max_dead:,} rows that are gone and in the way"
    return [CheckResult("dead rows", "ok", message, max_dead, "rows")]


async def check_indexes(context: CheckContext) -> list[CheckResult]:
    applied = await migrate.applied(context.database)
    if set(applied) != {each.version for each in migrate.migrations()}:
        return [CheckResult("indexes", "unchecked", "the schema is another one than this Rota's")]
    expected = doctor.expected_indexes(context.schema)
    existing = {each.name: each for each in await context.fetch(doctor.indexes(context.schema))}
    results = []
    for index in expected.values():
        if index.name not in existing:
            table = f"{context.schema}.{index.table}"
            message = f"index {index.name} of {table} is missing: what it is for reads all rows"
            results.append(CheckResult("indexes", "problem", message, 1, "index", index.statement))
    for each in existing.values():
        name = f"{context.schema}.{each.name}"
        if not each.is_valid:
            fix = (
                f"reindex index concurrently {name};"
                if each.name in expected
                else f"drop index concurrently {name};"
            )
            message = f"index {name} is invalid: it is written and never read"
            results.append(CheckResult("indexes", "problem", message, each.bytes, "bytes", fix))
        elif each.name not in expected and not each.scans:
            message = (
                f"index {name} is not Rota's own and was never used, and every write to "
                f"{context.schema}.{each.table} pays for it ({format_size(each.bytes)})"
            )
            fix = f"drop index concurrently {name};"
            results.append(CheckResult("indexes", "notice", message, each.bytes, "bytes", fix))
    message = f"all {len(expected)} indexes are there and can be used"
    return results or [CheckResult("indexes", "ok", message, len(expected), "indexes")]
