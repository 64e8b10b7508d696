"""The application in the guide to the dashboard serves it at the path the guide gives."""

from __future__ import annotations

import httpx2
import pytest

from rota.app.tokens import create_access_token
from rota.model.access import Role
from support.doc_pages import load_program


@pytest.mark.parametrize("served", ["api", "looking"])
async def test_mounted_dashboard_is_served_at_path_and_requires_token(
    served: str, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", rota_dsn)
    mounted = load_program("examples/tutorial/mounted.py")
    transport = httpx2.ASGITransport(app=getattr(mounted, served))
    async with (
        mounted.app,
        httpx2.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        asked = await client.get("/rota/", headers={"Accept": "text/html"})
        login = await client.get("/rota/login", headers={"Accept": "text/html"})
        api = await client.get("/rota/api/v1/runs")

    assert asked.status_code in (303, 401)
    assert login.status_code == 200
    assert "/rota/static/" in login.text
    assert api.status_code == 401


async def test_mounted_read_only_dashboard_refuses_start(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", rota_dsn)
    mounted = load_program("examples/tutorial/mounted.py")
    codes = []
    async with mounted.app:
        token, _ = await create_access_token(mounted.app, "ada", Role.ADMIN, None, by="test")
        for served in (mounted.api, mounted.looking):
            transport = httpx2.ASGITransport(app=served)
            async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as client:
                answer = await client.post(
                    "/rota/api/v1/runs",
                    json={"name": "greet", "input": {"name": "Ada"}},
                    headers={"Authorization": f"Bearer {token.text}"},
                )
                codes.append(answer.status_code)

    assert codes == [201, 403]
