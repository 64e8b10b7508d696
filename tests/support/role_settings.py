"""Settings of a role, and the settings that a session reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection, sql


async def change(db: AsyncConnection[Any], settings: Mapping[str, str]) -> None:
    """Change settings of this role in this database; they are dropped with the database."""
    row = await (await db.execute("select current_user, current_database()")).fetchone()
    assert row is not None
    for name, value in settings.items():
        await db.execute(
            sql.SQL("alter role {} in database {} set {} = {}").format(
                *(sql.Identifier(row[0]), sql.Identifier(row[1]), sql.Identifier(name)),
                # A list of names must not be quoted as one name with a comma.
                sql.SQL(value) if "," in value else sql.Literal(value),
            )
        )


SAID = {
    "default_transaction_isolation": ("read committed", "serializable"),
    "default_transaction_read_only": ("off", "on"),
    "default_transaction_deferrable": ("off", "on"),
    "synchronous_commit": ("on", "off"),
    "idle_in_transaction_session_timeout": ("10s", "1ms"),
    "lock_timeout": ("2s", "1ms"),
    "statement_timeout": ("30s", "10s"),
    "client_min_messages": ("warning", "debug1"),
    "search_path": ("pg_catalog", "traps"),
    "TimeZone": ("UTC", "Pacific/Apia"),
    "DateStyle": ("ISO, DMY", "German, DMY"),
    "IntervalStyle": ("postgres", "sql_standard"),
    "bytea_output": ("hex", "escape"),
    "client_encoding": ("UTF8", "latin1"),
    "array_nulls": ("on", "off"),
}

SAID_BY_ENGINES = {
    "enable_seqscan": ("off", "on"),
    "enable_bitmapscan": ("off", "on"),
    "enable_mergejoin": ("off", "on"),
    "plan_cache_mode": ("force_generic_plan", "force_custom_plan"),
    "jit": ("off", "on"),
}
