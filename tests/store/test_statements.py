"""PostgreSQL can prepare every SQL statement."""

from __future__ import annotations

import psycopg

from rota.store.query import positional
from rota.testing.server import DatabaseServer
from support.failures import assert_none
from support.source_files import statement_code, statements

# Definitions and COPY cannot be prepared; other tests run them.
PREPARED = ("select", "insert", "update", "delete", "with")


def test_sql_statements_can_be_prepared(rota_server: DatabaseServer) -> None:
    names = [each for each in statements() if statement_code(each).startswith(PREPARED)]
    found = []
    with rota_server.database() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        for name in names:
            text, _ = positional(name, "rota")
            answer = connection.pgconn.prepare(b"", text.encode())
            if answer.status != psycopg.pq.ExecStatus.COMMAND_OK:
                found.append(f"{name}: {answer.error_message.decode()}")

    assert len(names) > 200
    assert_none(found)
