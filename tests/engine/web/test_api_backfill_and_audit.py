"""Backfills over HTTP, and the audit log filtered by operator, action and subject."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from support.site_client import SiteClient

V1 = "/api/v1"


async def schedule(visitors: SiteClient, **more: Any) -> str:
    name = f"schedule {uuid4()}"
    body = {"name": name, "task": "greet", "cron": "0 7 * * *", "input": {"name": "Ada"}, **more}
    await visitors.done("POST", f"{V1}/schedules", json=body)
    return f"{V1}/schedules/{quote(name)}"


async def planned_ticks(visitors: SiteClient, at: str) -> list[str]:
    found = await visitors.done("GET", at)
    return [each["planned"] for each in found["ticks"]]


async def test_backfill_local_time_uses_schedule_zone_and_skips_done_ticks(
    site_client: SiteClient,
) -> None:
    at = await schedule(site_client, tz="Asia/Tokyo")
    body = {"start": "2026-01-01T07:00", "end": "2026-01-03T07:00"}
    first = await site_client.done("POST", f"{at}/backfill", json=body)
    assert len(first["runs"]) == 2
    assert await planned_ticks(site_client, at) == ["2026-01-01T22:00:00Z", "2025-12-31T22:00:00Z"]
    # Again, one day longer and in another time zone.
    longer = {"start": "2026-01-01", "end": "2026-01-03T22:00:01Z"}
    again = await site_client.done("POST", f"{at}/backfill", json=longer)
    assert len(again["runs"]) == 2
    assert len(set(first["runs"] + again["runs"])) == 4
    none = await site_client.done("POST", f"{at}/backfill", json=longer)
    assert none["runs"] == []


async def test_backfill_without_end_runs_until_now(site_client: SiteClient) -> None:
    at = await schedule(site_client, cron=None, every=3600, starts="2026-01-01T00:00:00Z")
    [[now]] = await site_client.sql("select rota.clock() - interval '150 min'")
    made = await site_client.done("POST", f"{at}/backfill", json={"start": now.isoformat()})
    assert len(made["runs"]) in (2, 3)


@pytest.mark.parametrize(
    "start", ["", "soon", "2026-13-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
async def test_backfill_invalid_start_is_refused(site_client: SiteClient, start: str) -> None:
    at = await schedule(site_client)
    answer = await site_client.ask("POST", f"{at}/backfill", json={"start": start})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    assert await planned_ticks(site_client, at) == []


async def test_backfill_unknown_schedule_is_not_found(site_client: SiteClient) -> None:
    answer = await site_client.ask(
        "POST", f"{V1}/schedules/none/backfill", json={"start": "2026-01-01"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_audit_list_filters_by_operator_action_and_subject(site_client: SiteClient) -> None:
    at = await schedule(site_client)
    name = (await site_client.done("GET", at))["name"]
    await site_client.done("POST", f"{at}/pause", who="operator")
    await site_client.done("POST", f"{at}/resume")

    async def deeds(**asked: str) -> list[tuple[str, str]]:
        found = await site_client.done("GET", f"{V1}/audit", params=asked)
        return [(each["action"], each["subject"]) for each in found["entries"]]

    made, paused, resumed = ((f"{word} schedule", name) for word in ("create", "pause", "resume"))
    assert await deeds(subject=name) == [resumed, paused, made]
    [line] = (await site_client.done("GET", f"{V1}/audit", params={"subject": name, "limit": 2}))[
        "entries"
    ][1:]
    assert await deeds(subject=name, operator=line["operator"]) == [paused]
    assert await deeds(subject=name, action="create schedule") == [made]
    assert await deeds(subject=name, action="drain worker") == []
    first = await site_client.done("GET", f"{V1}/audit", params={"subject": name, "limit": 2})
    rest = await deeds(subject=name, cursor=first["next"])
    assert rest == [made]
