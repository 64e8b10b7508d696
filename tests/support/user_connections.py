"""Connections of the user's own: SQLAlchemy, asyncpg and Django."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import django
import sqlalchemy as sa
from django.conf import settings as django_settings
from psycopg.conninfo import conninfo_to_dict


def sqlalchemy_url(dsn: str, driver: str) -> sa.URL:
    """Return the SQLAlchemy URL of the same database."""
    words = dsn_parameters(dsn)
    return sa.URL.create(
        f"postgresql+{driver}",
        username=words["user"],
        database=words["dbname"],
        query={"host": words["host"]},
    )


def dsn_parameters(dsn: str) -> dict[str, str]:
    return {word: str(value) for word, value in conninfo_to_dict(dsn).items()}


@asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[Any]:
    words = dsn_parameters(dsn)
    connection = await asyncpg.connect(
        host=words["host"], user=words["user"], database=words["dbname"]
    )
    try:
        yield connection
    finally:
        await connection.close()


def django_connection(dsn: str) -> Any:
    if not django_settings.configured:
        django_settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}
        )
        django.setup()
    from django.db import connections

    words = dsn_parameters(dsn)
    connections.databases["default"].update(
        NAME=words["dbname"], USER=words["user"], HOST=words["host"]
    )
    return connections["default"]
