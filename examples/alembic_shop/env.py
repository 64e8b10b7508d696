"""Alembic environment of an application that keeps Rota in the same database."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import create_engine

from .models import Base


# [include]
def include_name(name: str | None, type_: str, parent_names: object) -> bool:
    """Keep the schema of Rota out of migrations that Alembic generates."""
    return not (type_ == "schema" and name == "rota")


# [/include]


def migrate() -> None:
    url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1)
    with create_engine(url).connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            include_schemas=True,
            include_name=include_name,
        )

        with context.begin_transaction():
            context.run_migrations()
        connection.commit()


migrate()
