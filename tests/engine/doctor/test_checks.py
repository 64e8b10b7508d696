"""Problems that a test cannot cause on a server: the checks run on made-up figures."""

from __future__ import annotations

from typing import Any

import pytest

from rota.engine.diagnosis import doctor_checks
from rota.engine.diagnosis.doctor import CHECKS
from rota.engine.diagnosis.doctor_checks import CheckContext
from rota.model.check_result import CheckResult, format_size
from rota.model.settings import Settings
from rota.model.text import in_one_unit
from rota.store.database import Database
from rota.store.read.doctor import (
    ClockSkewRow,
    NotificationQueueRow,
    ServerRow,
    SnapshotHolderRow,
    TableRow,
    VacuumRow,
    expected_indexes,
)
from support.doctor import now

WELL = ServerRow("15.1", 150001, False, False, True, True, 100, 10, True, "me", "me")


def check_context(
    *rows: Any, settings: Settings | None = None, pooled: bool = False
) -> CheckContext:
    """Return a context that answers every query with these rows, and the query for tables with none."""

    async def asked(query: Any) -> list[Any]:
        return [] if query.statement == "doctor/tables" else list(rows)

    database = Database("postgresql://nowhere", settings or Settings())
    return CheckContext(database, asked, pooled, now)


def server_context(**different: Any) -> CheckContext:
    fields = {name: getattr(WELL, name) for name in WELL.__struct_fields__}
    return check_context(ServerRow(**{**fields, **different}))


@pytest.mark.parametrize(
    ("different", "level", "words"),
    [
        ({}, "ok", "PostgreSQL 15.1"),
        ({"version": "13.2", "version_number": 130002}, "problem", "too old"),
        ({"is_standby": True}, "problem", "standby"),
        ({"is_read_only": True}, "notice", "read only"),
    ],
)
async def test_check_server_version_and_mode_set_the_level(
    different: dict[str, Any], level: str, words: str
) -> None:
    [found] = await doctor_checks.check_server(server_context(**different))

    assert found.level == level
    assert words in found.message
    assert (found.fix is None) == (level == "ok")


async def test_check_server_without_privilege_is_unchecked() -> None:
    [_, unseen] = await doctor_checks.check_server(server_context(can_see_all_sessions=False))

    assert (unseen.level, unseen.fix) == ("unchecked", "grant pg_read_all_stats to me;")


async def test_check_server_fix_quotes_the_role() -> None:
    odd = {"role": "Rota-App", "quoted_role": '"Rota-App"'}
    [_, unseen] = await doctor_checks.check_server(
        server_context(can_see_all_sessions=False, **odd)
    )
    [closed] = await doctor_checks.check_server(server_context(is_read_only=True, **odd))

    assert unseen.fix == 'grant pg_read_all_stats to "Rota-App";'
    assert closed.fix == 'alter role "Rota-App" set default_transaction_read_only = off;'


@pytest.mark.parametrize(
    ("off", "named", "level"),
    [("fsync", "fsync", "problem"), ("full_page_writes", "full_page_writes", "notice")],
)
async def test_check_durability_disabled_setting_is_found(off: str, named: str, level: str) -> None:
    assert [each.level for each in await doctor_checks.check_durability(server_context())] == ["ok"]
    [found] = await doctor_checks.check_durability(server_context(**{off: False}))

    assert found.level == level
    assert f"{named} is off: unless your provider's storage does this" in found.message
    assert found.fix == f"alter system set {named} = on; select pg_reload_conf();"


async def test_check_durability_each_disabled_setting_has_its_level() -> None:
    found = await doctor_checks.check_durability(
        server_context(fsync=False, full_page_writes=False)
    )

    assert [each.level for each in found] == ["problem", "notice"]


@pytest.mark.parametrize(
    ("dead", "ago", "every", "level"),
    [
        (25_000, None, 60.0, "notice"),
        (25_000, 60.0, 60.0, "ok"),
        (600_000, 119.0, 60.0, "ok"),
        (25_000, 125.0, 60.0, "notice"),
        (600_000, 125.0, 60.0, "problem"),
        (25_000, 60.0, 15.0, "notice"),
    ],
)
async def test_check_dead_rows_level_depends_on_last_vacuum(
    dead: int, ago: float | None, every: float, level: str
) -> None:
    async def asked(query: Any) -> list[Any]:
        if query.statement == "doctor/tables":
            return [TableRow("queued", 100, dead, 5_000_000, True, ago)]
        return [VacuumRow(True, True, every, 1)]

    database = Database("postgresql://nowhere", Settings())
    [found] = await doctor_checks.check_dead_rows(CheckContext(database, asked, False, now))

    assert (found.level, found.value) == (level, dead)


async def test_check_clock_fix_names_the_configured_schema() -> None:
    [found, _] = await doctor_checks.check_clock(
        check_context(ClockSkewRow(now(), 86400.0), settings=Settings(schema="other"))
    )

    assert found.message.startswith("other.clock() is 1.0 d off")
    assert found.fix is not None
    assert "'other.clock'::regproc" in found.fix
    assert "rota.clock" not in found.fix


@pytest.mark.parametrize(
    ("taken", "level"), [(79, "ok"), (80, "notice"), (94, "notice"), (95, "problem")]
)
async def test_check_connections_usage_sets_the_level(taken: int, level: str) -> None:
    [found] = await doctor_checks.check_connections(server_context(connections=taken))

    assert (found.level, found.value) == (level, taken)


@pytest.mark.parametrize(
    ("holder", "level", "words"),
    [
        (SnapshotHolderRow("session", "me", 7, 59.0, 1, "idle"), "ok", ""),
        (
            SnapshotHolderRow("session", "me", 7, 61.0, 1, "idle in transaction"),
            "notice",
            "process 7",
        ),
        (
            SnapshotHolderRow("prepared", "o'brien", None, 1000.0, 1, None),
            "problem",
            "prepared transaction",
        ),
        (SnapshotHolderRow("slot", "old", None, None, 999_999, "idle"), "ok", ""),
        (
            SnapshotHolderRow("slot", "old", None, None, 30_000_000, "idle"),
            "problem",
            "slot 'old' (idle)",
        ),
    ],
)
async def test_check_snapshots_age_of_holder_sets_the_level(
    holder: SnapshotHolderRow, level: str, words: str
) -> None:
    [found] = await doctor_checks.check_snapshots(check_context(holder))

    assert found.level == level
    assert words in found.message
    if holder.kind == "prepared":
        assert found.fix == "rollback prepared 'o''brien'; or commit it"


@pytest.mark.parametrize(("full", "level"), [(0.04, "ok"), (0.05, "notice"), (0.5, "problem")])
async def test_check_notifications_queue_usage_sets_the_level(full: float, level: str) -> None:
    [found] = await doctor_checks.check_notifications(
        check_context(NotificationQueueRow(full, 7, "me", 60.0))
    )

    assert found.level == level
    assert found.value == full * 100


@pytest.mark.parametrize(
    ("sweeping", "level", "words"),
    [
        (VacuumRow(True, True, 60.0, 1), "ok", "is on"),
        (VacuumRow(False, True, 60.0, 1), "problem", "autovacuum is off"),
        (VacuumRow(True, False, 60.0, 1), "problem", "track_counts is off"),
        (VacuumRow(True, True, 600.0, 1), "notice", "only every 10.0 min"),
    ],
)
async def test_check_autovacuum_settings_set_the_level(
    sweeping: VacuumRow, level: str, words: str
) -> None:
    [found] = await doctor_checks.check_autovacuum(check_context(sweeping))

    assert found.level == level
    assert words in found.message


@pytest.mark.parametrize(
    ("age", "level"), [(10**9 - 1, "ok"), (10**9, "notice"), (15 * 10**8, "problem")]
)
async def test_check_wraparound_age_sets_the_level(age: int, level: str) -> None:
    [found] = await doctor_checks.check_wraparound(check_context(VacuumRow(True, True, 60.0, age)))

    assert (found.level, found.value) == (level, age)


def test_checks_have_unique_names() -> None:
    names = [name for name, _ in CHECKS]

    assert len(set(names)) == len(names)


def test_expected_indexes_use_the_given_schema() -> None:
    made = expected_indexes("other")["queued_order"]

    assert made.statement.startswith("CREATE INDEX CONCURRENTLY queued_order ON other.queued ")
    assert "rota." not in made.statement


def test_format_size_and_duration_choose_readable_units() -> None:
    assert [format_size(each) for each in (12, 2048, 5_000_000)] == ["12 B", "2 kB", "4.77 MB"]
    assert [in_one_unit(each) for each in (1.25, 90, 7200, 172800)] == [
        "1.2 s",
        "1.5 min",
        "2.0 h",
        "2.0 d",
    ]
    assert CheckResult("x", "problem", "").rank == 0
