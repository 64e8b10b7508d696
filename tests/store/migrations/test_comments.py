"""Comments: every table, view, column, function, type and sequence of the schema has one."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import Connection

UNCOMMENTED = {
    "table or view": """
        select class.relname
          from pg_class as class
         where class.relnamespace = 'rota'::regnamespace
           and class.relkind in ('r', 'p', 'v', 'm', 'f')
           and coalesce(obj_description(class.oid, 'pg_class'), '') = ''
         order by 1
        """,
    "column": """
        select class.relname || '.' || attribute.attname
          from pg_class as class
          join pg_attribute as attribute on attribute.attrelid = class.oid
         where class.relnamespace = 'rota'::regnamespace
           and class.relkind in ('r', 'p', 'v', 'm', 'f')
           and attribute.attnum > 0
           and not attribute.attisdropped
           and coalesce(col_description(class.oid, attribute.attnum), '') = ''
         order by class.relname, attribute.attnum
        """,
    "function": """
        select proc.oid::regprocedure::text
          from pg_proc as proc
         where proc.pronamespace = 'rota'::regnamespace
           and coalesce(obj_description(proc.oid, 'pg_proc'), '') = ''
         order by 1
        """,
    # Without row types of tables and array types.
    "type": """
        select type.typname
          from pg_type as type
          left join pg_class as class on class.oid = type.typrelid
         where type.typnamespace = 'rota'::regnamespace
           and (type.typtype in ('e', 'd', 'r') or class.relkind = 'c')
           and coalesce(obj_description(type.oid, 'pg_type'), '') = ''
         order by 1
        """,
    # Without sequences of identity columns.
    "sequence": """
        select class.relname
          from pg_class as class
         where class.relnamespace = 'rota'::regnamespace
           and class.relkind = 'S'
           and not exists (select from pg_depend where objid = class.oid and deptype = 'i')
           and coalesce(obj_description(class.oid, 'pg_class'), '') = ''
         order by 1
        """,
}

OBJECTS = {
    "table or view": ("create table rota.added ()", "added"),
    "column": ("alter table rota.jobs add column added integer", "jobs.added"),
    "function": ("create function rota.added() returns int return 1", "rota.added()"),
    "type": ("create type rota.added as enum ('a')", "added"),
    "sequence": ("create sequence rota.added", "added"),
}


def uncommented(connection: Connection[Any], kind: str) -> list[str]:
    return [name for (name,) in connection.execute(UNCOMMENTED[kind].encode()).fetchall()]


@pytest.mark.parametrize("kind", UNCOMMENTED)
def test_schema_objects_have_comments(rota_dsn: str, kind: str) -> None:
    with psycopg.connect(rota_dsn) as connection:
        found = uncommented(connection, kind)

    assert found == [], f"add `comment on …` below each {kind} in src/rota/store/migrations/"


@pytest.mark.parametrize("kind", UNCOMMENTED)
def test_schema_object_without_comment_is_found(rota_dsn: str, kind: str) -> None:
    statement, name = OBJECTS[kind]
    with psycopg.connect(rota_dsn) as connection:
        connection.execute(statement.encode())
        assert uncommented(connection, kind) == [name]
        connection.rollback()
