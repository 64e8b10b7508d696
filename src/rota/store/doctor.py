"""Read-only questions about the server and the schema: each is one thing that can be wrong with them."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from importlib import resources

import msgspec

from rota.store.query import Query, in_schema

FIRST = 200
"""So many of each lane are looked at for what nobody takes."""


class Server(msgspec.Struct, frozen=True):
    version: str
    number: int
    standby: bool
    read_only: bool
    fsync: bool
    whole_pages: bool
    most: int
    connections: int
    sees_all: bool
    """Whether this role sees what others do."""
    me: str
    quoted: str
    """The same, as a statement names it."""


class Clocks(msgspec.Struct, frozen=True):
    now: datetime
    off: float
    """By how much Rota's clock is before the server's: 0, unless somebody set it."""


class Holder(msgspec.Struct, frozen=True):
    """Somebody who keeps rows that are gone."""

    kind: str
    whose: str
    pid: int | None
    seconds: float | None
    age: int | None
    state: str | None


class TableLine(msgspec.Struct, frozen=True):
    name: str
    live: int
    dead: int
    bytes: int
    vacuumed: bool
    ago: float | None


class IndexLine(msgspec.Struct, frozen=True):
    name: str
    table: str
    valid: bool
    scans: int | None
    bytes: int


class Sweeping(msgspec.Struct, frozen=True):
    on: bool
    counted: bool
    every: float
    age: int


class Notifications(msgspec.Struct, frozen=True):
    full: float
    pid: int | None
    whose: str | None
    seconds: float | None


class Unclaimable(msgspec.Struct, frozen=True):
    queue: str
    task: str
    jobs: int
    job: int
    serving: int


class Overdue(msgspec.Struct, frozen=True):
    jobs: int
    seconds: float | None


class Orphaned(msgspec.Struct, frozen=True):
    jobs: int
    worker: int | None


class Crew(msgspec.Struct, frozen=True):
    there: int
    silent: int
    engines: list[str]
    quarantined: int


class Made(msgspec.Struct, frozen=True):
    """An index, and the statement that makes it."""

    name: str
    table: str
    text: str


_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+) ON rota\.(\w+) .*;")
_TABLE = re.compile(r"create table rota\.(\w+) \(")
_KEY = re.compile(r"\s+constraint (\w+) ((?:PRIMARY KEY|UNIQUE) \(.*?\)),?$")


@cache
def expected(schema: str) -> dict[str, Made]:
    """Every index that the migrations make, by name."""
    text = (resources.files("rota.store") / "schema.sql").read_text("utf-8")
    found: dict[str, Made] = {}
    table = ""
    for line in text.splitlines():
        if match := _TABLE.match(line):
            table = match[1]
        elif match := _KEY.match(line):
            made = in_schema(
                f"alter table rota.{table} add constraint {match[1]} {match[2]};", schema
            )
            found[match[1]] = Made(match[1], table, made)
        elif match := _INDEX.match(line):
            made = in_schema(line.replace(" INDEX ", " INDEX CONCURRENTLY ", 1), schema)
            found[match[1]] = Made(match[1], match[2], made)
    return found


def server() -> Query[Server]:
    return Query("doctor/server", {}, Server)


def clock() -> Query[Clocks]:
    return Query("doctor/clock", {}, Clocks)


def snapshots() -> Query[Holder]:
    return Query("doctor/snapshots", {}, Holder)


def tables(schema: str) -> Query[TableLine]:
    return Query("doctor/tables", {"schema": schema}, TableLine)


def indexes(schema: str) -> Query[IndexLine]:
    return Query("doctor/indexes", {"schema": schema}, IndexLine)


def autovacuum() -> Query[Sweeping]:
    return Query("doctor/autovacuum", {}, Sweeping)


def notifications() -> Query[Notifications]:
    return Query("doctor/notifications", {}, Notifications)


def unclaimable() -> Query[Unclaimable]:
    return Query("doctor/unclaimable", {"first": FIRST}, Unclaimable)


def overdue(late: float) -> Query[Overdue]:
    return Query("doctor/overdue", {"late": late}, Overdue)


def orphans(silent: float) -> Query[Orphaned]:
    return Query("doctor/orphans", {"silent": silent}, Orphaned)


def crew(silent: float) -> Query[Crew]:
    return Query("doctor/crew", {"silent": silent}, Crew)
