"""The schema: whether it is the one this Rota works with, and whether its tables and indexes are well."""

from __future__ import annotations

from rota.engine.charts import Chart
from rota.model.checkup import Checked, duration, grade, size
from rota.store import doctor, migrate

DEAD, TOO_DEAD = 20_000, 500_000
"""Rows that are gone and in the way, beside at least as many that are there."""


async def schema(chart: Chart) -> list[Checked]:
    applied = await migrate.applied(chart.database)
    behind = [each for each in migrate.migrations() if each.version not in applied]
    newer = [each for each in applied if each > migrate.newest()]
    where = f"schema {chart.schema!r}"
    if not applied:
        words = f"{where} has not got Rota's tables"
        return [Checked("schema", "problem", words, 0, "migrations", "rota db migrate")]
    if newer:
        words = f"{where} was made by a newer Rota: it has migration {max(newer):04d}"
        fix = "pip install --upgrade rota"
        return [Checked("schema", "problem", words, max(newer), "migrations", fix)]
    if behind:
        words = f"{where} is {len(behind)} migration(s) behind this Rota"
        return [Checked("schema", "problem", words, len(behind), "migrations", "rota db migrate")]
    words = f"{where} has all {len(applied)} migrations"
    return [Checked("schema", "ok", words, len(applied), "migrations")]


async def dead_rows(chart: Chart) -> list[Checked]:
    tables = await chart.ask(doctor.tables(chart.schema))
    # A queue at speed has so many within a minute, and is well as long as autovacuum comes for them.
    lately = 2 * (await chart.one(doctor.autovacuum())).every
    bad = []
    for each in tables:
        if each.dead < DEAD or each.dead < each.live:
            continue
        if each.ago is not None and each.ago <= lately:
            continue
        ago = "never" if each.ago is None else f"{duration(each.ago)} ago"
        table = f"{chart.schema}.{each.name}"
        words = (
            f"{table} has {each.dead:,} rows that are gone beside {each.live:,} that are there, and "
            f"{size(each.bytes)}; it was last vacuumed {ago}"
        )
        level = grade(each.dead, DEAD, TOO_DEAD)
        bad.append(
            Checked("dead rows", level, words, each.dead, "rows", f"vacuum (analyze) {table};")
        )
    if bad:
        return bad
    most = max((each.dead for each in tables), default=0)
    words = f"no table has more than {most:,} rows that are gone and in the way"
    return [Checked("dead rows", "ok", words, most, "rows")]


async def indexes(chart: Chart) -> list[Checked]:
    applied = await migrate.applied(chart.database)
    if set(applied) != {each.version for each in migrate.migrations()}:
        return [Checked("indexes", "unseen", "the schema is another one than this Rota's")]
    wanted = doctor.expected(chart.schema)
    there = {each.name: each for each in await chart.ask(doctor.indexes(chart.schema))}
    answers = []
    for made in wanted.values():
        if made.name not in there:
            table = f"{chart.schema}.{made.table}"
            words = f"index {made.name} of {table} is missing: what it is for reads all rows"
            answers.append(Checked("indexes", "problem", words, 1, "index", made.text))
    for each in there.values():
        name = f"{chart.schema}.{each.name}"
        if not each.valid:
            fix = (
                f"reindex index concurrently {name};"
                if each.name in wanted
                else f"drop index concurrently {name};"
            )
            words = f"index {name} is invalid: it is written and never read"
            answers.append(Checked("indexes", "problem", words, each.bytes, "bytes", fix))
        elif each.name not in wanted and not each.scans:
            words = (
                f"index {name} is not Rota's own and was never used, and every write to "
                f"{chart.schema}.{each.table} pays for it ({size(each.bytes)})"
            )
            fix = f"drop index concurrently {name};"
            answers.append(Checked("indexes", "notice", words, each.bytes, "bytes", fix))
    words = f"all {len(wanted)} indexes are there and can be used"
    return answers or [Checked("indexes", "ok", words, len(wanted), "indexes")]
