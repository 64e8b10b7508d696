"""Read-only queries about the server and the schema, one for each check of `rota doctor`."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from importlib import resources

import msgspec

from rota.store.query import in_schema, statement


class ServerRow(msgspec.Struct, frozen=True):
    version: str
    version_number: int
    is_standby: bool
    is_read_only: bool
    fsync: bool
    full_page_writes: bool
    max_connections: int
    connections: int
    can_see_all_sessions: bool
    """True if this role may see the activity of other sessions."""
    role: str
    quoted_role: str
    """The role as a quoted identifier."""


class ClockSkewRow(msgspec.Struct, frozen=True):
    now: datetime
    offset_seconds: float
    """Seconds that Rota's clock is ahead of the server's: 0, unless it was set."""


class SnapshotHolderRow(msgspec.Struct, frozen=True):
    """Session, slot or prepared transaction that keeps dead rows from being removed."""

    kind: str
    name: str
    pid: int | None
    seconds: float | None
    xid_age: int | None
    state: str | None


class TableRow(msgspec.Struct, frozen=True):
    name: str
    live_rows: int
    dead_rows: int
    bytes: int
    has_autovacuum: bool
    vacuumed_seconds_ago: float | None


class IndexRow(msgspec.Struct, frozen=True):
    name: str
    table: str
    is_valid: bool
    scans: int | None
    bytes: int


class VacuumRow(msgspec.Struct, frozen=True):
    is_enabled: bool
    tracks_counts: bool
    naptime_seconds: float
    xid_age: int


class NotificationQueueRow(msgspec.Struct, frozen=True):
    queue_usage: float
    pid: int | None
    application: str | None
    seconds: float | None


class OverdueRow(msgspec.Struct, frozen=True):
    jobs: int
    late_seconds: float | None


class OrphanedClaimsRow(msgspec.Struct, frozen=True):
    jobs: int
    first_worker: int | None


class WorkerCountRow(msgspec.Struct, frozen=True):
    workers: int
    silent_workers: int
    rota_versions: list[str]
    quarantined: int


class IndexDefinitionRow(msgspec.Struct, frozen=True):
    """Index and the statement that creates it."""

    name: str
    table: str
    statement: str


_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+) ON rota\.(\w+) .*;")
_TABLE = re.compile(r"create table rota\.(\w+) \(")
_KEY = re.compile(r"\s+constraint (\w+) ((?:PRIMARY KEY|UNIQUE) \(.*?\)),?$")


@cache
def expected_indexes(schema: str) -> dict[str, IndexDefinitionRow]:
    """Return every index that the migrations create, by name."""
    text = (resources.files("rota.store") / "schema.sql").read_text("utf-8")
    found: dict[str, IndexDefinitionRow] = {}
    table = ""
    for line in text.splitlines():
        if match := _TABLE.match(line):
            table = match[1]
        elif match := _KEY.match(line):
            statement = in_schema(
                f"alter table rota.{table} add constraint {match[1]} {match[2]};", schema
            )
            found[match[1]] = IndexDefinitionRow(match[1], table, statement)
        elif match := _INDEX.match(line):
            statement = in_schema(line.replace(" INDEX ", " INDEX CONCURRENTLY ", 1), schema)
            found[match[1]] = IndexDefinitionRow(match[1], match[2], statement)
    return found


@statement("doctor/server", ServerRow)
def server() -> None: ...


@statement("doctor/clock", ClockSkewRow)
def clock() -> None: ...


@statement("doctor/snapshot_holders", SnapshotHolderRow)
def snapshot_holders() -> None: ...


@statement("doctor/tables", TableRow)
def tables(schema: str) -> None: ...


@statement("doctor/indexes", IndexRow)
def indexes(schema: str) -> None: ...


@statement("doctor/autovacuum", VacuumRow)
def autovacuum() -> None: ...


@statement("doctor/notifications", NotificationQueueRow)
def notifications() -> None: ...


@statement("doctor/overdue_jobs", OverdueRow)
def overdue_jobs(late_seconds: float) -> None: ...


@statement("doctor/orphaned_claims", OrphanedClaimsRow)
def orphaned_claims(silent_seconds: float) -> None: ...


@statement("doctor/worker_counts", WorkerCountRow)
def worker_counts(silent_seconds: float) -> None: ...
