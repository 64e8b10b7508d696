"""`rota doctor`: exit codes and output, through a pooler and with few privileges."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from rota.cli import main
from rota.cli.exit_codes import FAILED, NO_DATABASE, OK
from rota.engine.diagnosis import doctor_checks
from rota.testing.server import DatabaseServer
from support.doctor import Doctor
from support.pgbouncer import PgBouncer, run_pgbouncer


@pytest.fixture
def healthy_dsn(monkeypatch: pytest.MonkeyPatch, direct_dsn: str) -> str:
    """Database without problems; the test server's lack of durability is ignored."""
    monkeypatch.setenv("ROTA_DATABASE_URL", direct_dsn)

    async def durable(_: object) -> list[object]:
        return []

    from rota.engine.diagnosis import doctor

    checks = [each for each in doctor.CHECKS if each[1] is not doctor_checks.check_durability]
    monkeypatch.setattr(doctor, "CHECKS", [*checks, ("durability", durable)])
    return direct_dsn


def test_doctor_command_no_problem_exits_with_0(
    healthy_dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main.run(["doctor"])

    said = capfd.readouterr().out
    assert code == OK
    assert "0 problems, 1 notice" in said
    assert said.startswith("notice  workers        no worker is running\n")
    assert "        fix            rota worker MODULE:APP\n" in said


def test_doctor_command_problem_exits_with_1(
    healthy_dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(healthy_dsn, autocommit=True) as connection:
        connection.execute("drop index rota.queued_order")

    assert main.run(["doctor"]) == FAILED
    said = capfd.readouterr().out
    assert said.startswith("problem  indexes        index queued_order of rota.queued is missing")
    assert (
        "CREATE INDEX CONCURRENTLY queued_order ON rota.queued USING btree (queue, priority, seq);"
        in said
    )

    assert main.run(["doctor", "--json"]) == FAILED
    document = json.loads(capfd.readouterr().out)
    assert document["healthy"] is False
    [found] = [each for each in document["checks"] if each["level"] == "problem"]
    assert (found["check"], found["value"], found["unit"]) == ("indexes", 1, "index")


def test_doctor_command_unreachable_database_exits_with_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "ROTA_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1"
    )

    assert main.run(["doctor"]) == NO_DATABASE


@pytest.fixture
def unprivileged_dsn(direct_dsn: str) -> Iterator[str]:
    """Role that may only log in."""
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        connection.execute('drop role if exists "Rota-Stranger"')
        connection.execute('create role "Rota-Stranger" login')
    yield make_conninfo(direct_dsn, user="Rota-Stranger")
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        connection.execute('drop owned by "Rota-Stranger"')
        connection.execute('drop role "Rota-Stranger"')


async def test_doctor_without_privileges_lists_unchecked_checks(
    doctor: Doctor, unprivileged_dsn: str, direct_dsn: str
) -> None:
    found = await doctor.look(dsn=unprivileged_dsn)

    unseen = {each.check: each for each in found if each.level == "unchecked"}
    assert {"schema", "server", "workers", "unclaimable", "orphans"} <= set(unseen)
    assert "permission denied" in unseen["orphans"].message
    assert unseen["server"].fix == 'grant pg_read_all_stats to "Rota-Stranger";'
    assert {"clock", "connections"} <= {each.check for each in found}

    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as connection:
        await connection.execute('grant usage on schema rota to "Rota-Stranger"')
        await connection.execute('grant select on all tables in schema rota to "Rota-Stranger"')
    found = await doctor.look(dsn=unprivileged_dsn)
    assert {each.check for each in found if each.level == "unchecked"} == {"server"}


@pytest.fixture(scope="module")
def pooler(rota_server: DatabaseServer) -> Iterator[PgBouncer]:
    with run_pgbouncer(rota_server.dsn) as started:
        yield started


async def test_doctor_through_pooler_adds_notice_and_checks_all(
    doctor: Doctor, pooler: PgBouncer, direct_dsn: str
) -> None:
    through = pooler.before(direct_dsn)

    found = await doctor.look(dsn=through)
    past = await doctor.one("pooler", dsn=through, direct=direct_dsn)
    straight = await doctor.one("pooler")

    [told] = [each for each in found if each.check == "pooler"]
    assert (told.level, past.level, straight.level) == ("notice", "ok", "ok")
    assert told.fix is not None
    assert told.fix.startswith("ROTA_DIRECT_URL=")
    assert [each for each in found if each.level == "unchecked"] == []
    assert {each.check for each in found if each.level == "problem"} <= {"durability"}
