"""DSN of the server, and creation of the app's database."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from urllib.parse import quote

from rota.errors import LocalPostgresError
from rota.localpg.paths import ServerPaths
from rota.localpg.postmaster import Postmaster
from rota.localpg.projects import ProjectDatabase

# Error messages of a server that is starting or stopping. They are in English: lc_messages=C.
TRANSIENT_ERRORS = ("starting up", "recovery mode", "shutting down", "not yet accepting")
READY_TIMEOUT_SECONDS = 60.0


def socket_dsn(server: Postmaster, database: str) -> str:
    # The port is always included; otherwise PGPORT of the environment would apply.
    host = quote(str(server.socket_dir), safe="/")
    return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={server.port}"


def tcp_dsn(server: Postmaster, paths: ServerPaths, database: str) -> str:
    secret = quote(paths.password_file.read_text(), safe="")
    return f"postgresql://postgres:{secret}@127.0.0.1:{server.port}/{quote(database, safe='')}"


def ensure_database(server: Postmaster, paths: ServerPaths, project: ProjectDatabase) -> None:
    """Create the database unless it exists, and set a password if the server has a TCP port."""
    import psycopg  # imported late: the DSN alone does not need it
    from psycopg import errors, sql

    database = project.name
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while True:
        try:
            with psycopg.connect(
                socket_dsn(server, "postgres"), autocommit=True, connect_timeout=10
            ) as connection:
                found = connection.execute(
                    "select 1 from pg_database where datname = %s", [database]
                ).fetchone()
                if not found:
                    create = sql.SQL("create database {}").format(sql.Identifier(database))
                    # Another app may create it first.
                    with suppress(errors.DuplicateDatabase, errors.UniqueViolation):
                        connection.execute(create)
                        if project.directory is not None:
                            describe = sql.SQL("comment on database {} is {}").format(
                                sql.Identifier(database), sql.Literal(f"{project.directory}")
                            )
                            connection.execute(describe)
                if server.has_tcp and not paths.password_file.exists():
                    secret = secrets.token_urlsafe(24)
                    change = sql.SQL("alter role postgres password {}").format(sql.Literal(secret))
                    connection.execute(change)
                    _write_secret(paths, secret)
            return
        except psycopg.Error as error:
            is_transient = any(word in str(error) for word in TRANSIENT_ERRORS)
            if not is_transient or time.monotonic() > deadline:
                raise LocalPostgresError(
                    f"the PostgreSQL in {paths.data} is running, but database {database!r} "
                    f"cannot be had: {str(error).strip()}"
                ) from error
            time.sleep(0.05)


def list_databases(dsn: str) -> list[tuple[str, str | None, int]]:
    """Return the name, project directory and size in bytes of every database of the server at `dsn`."""
    import psycopg

    with psycopg.connect(dsn, dbname="postgres", connect_timeout=10) as connection:
        return connection.execute(
            "select datname, shobj_description(oid, 'pg_database'), pg_database_size(oid)"
            " from pg_database where not datistemplate and datname <> 'postgres' order by datname"
        ).fetchall()


def drop_database(dsn: str, database: str) -> None:
    """Drop a database of the server at `dsn`. Refuse if a program uses it."""
    import psycopg
    from psycopg import errors, sql

    with psycopg.connect(dsn, dbname="postgres", autocommit=True, connect_timeout=10) as connection:
        try:
            connection.execute(sql.SQL("drop database {}").format(sql.Identifier(database)))
        except errors.InvalidCatalogName:
            raise LocalPostgresError(
                f"there is no database {database!r}; `rota pg list` shows them"
            ) from None
        except errors.ObjectInUse:
            raise LocalPostgresError(
                f"database {database!r} is in use; stop the programs that use it first"
            ) from None


def _write_secret(paths: ServerPaths, secret: str) -> None:
    temporary = paths.password_file.with_suffix(".new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret)
    temporary.rename(paths.password_file)
