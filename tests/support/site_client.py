"""Clients of Rota's site over HTTP in the same process, without a port."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Any

import httpx2

from rota import Context, Rota
from rota.app.tokens import create_access_token, revoke_access_token
from rota.model.access import Role
from rota.store import tokens
from rota.web.site import site
from rota.web.tokens_auth import LocalAccess

PASSES = ("nobody", "viewer", "operator", "admin", "expired", "revoked")

SECRET = "planted-s3cret-9d1f"


def make_site_app(dsn: str) -> Rota:
    """Return an app with data for the requests."""
    app = Rota(dsn, poll_interval=0.1)

    @app.task
    async def greet(name: str, times: int = 1) -> str:
        return f"hello {name}" * times

    @app.task(queue="slow")
    async def stumble(ctx: Context, word: str) -> None:
        ctx.log(f"about to stumble over {word}")
        await ctx.step("look", _look, word)
        raise ValueError(f"stumbled over {word}")

    @app.task
    async def approve(ctx: Context) -> Any:
        return await ctx.wait_signal("answer", dict[str, Any])

    @app.action("remind")
    async def remind(text: str) -> None: ...

    etl = app.flow("etl")

    @etl.task
    async def extract(day: str) -> list[str]:
        return [day]

    @etl.task
    async def load(extract: list[str]) -> int:
        return len(extract)

    return app


async def _look(word: str) -> str:
    return word


class SiteClient:
    """Sends requests with a role's token: `await visitors.ask("GET", "/api/v1/runs", who="viewer")`."""

    def __init__(self, app: Rota, **site_options: Any) -> None:
        self.app = app
        self.site = site(app, **site_options)
        self.passes: dict[str, str] = {}
        if isinstance(access := site_options.get("auth"), LocalAccess):
            self.passes["admin"] = access.key

    async def __aenter__(self) -> SiteClient:
        for role in Role:
            token, _ = await create_access_token(
                self.app, role.text, role, timedelta(days=1), "test"
            )
            self.passes[role.text] = token.text
        for state in ("expired", "revoked"):
            token, _ = await create_access_token(
                self.app, state, Role.ADMIN, timedelta(days=1), "test"
            )
            self.passes[state] = token.text
            if state == "revoked":
                await revoke_access_token(self.app, token.id, "test")
            else:
                await self.expire(token.id)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def expire(self, id: str) -> None:
        database = (await self.app.open()).database
        async with database.connection() as connection:
            await connection.execute(
                "update rota.access_tokens set expires = now() - interval '1 s' where id = %s",
                (id,),
            )

    async def sql(self, text: str, *params: Any) -> list[Any]:
        database = (await self.app.open()).database
        async with database.connection() as connection:
            cursor = await connection.execute(text.encode(), params)
            return await cursor.fetchall() if cursor.description is not None else []

    async def kept(self, who: str) -> tokens.TokenRow:
        id = self.passes[who].split("_")[1]
        database = (await self.app.open()).database
        [line] = await database.run(tokens.list_tokens(id, include_inactive=True))
        return line

    async def ask(
        self,
        method: str,
        path: str,
        *,
        who: str = "admin",
        client: str = "127.0.0.1",
        base: str = "http://localhost:8000",
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> httpx2.Response:
        said = dict(headers or {})
        if who in self.passes:
            said.setdefault("Authorization", f"Bearer {self.passes[who]}")
        transport = httpx2.ASGITransport(app=self.site, client=(client, 4242))
        async with httpx2.AsyncClient(transport=transport, base_url=base) as asking:
            return await asking.request(method, path, headers=said, **more)

    async def done(self, method: str, path: str, **more: Any) -> Any:
        """Return the JSON of the answer; fail unless the status is 2xx."""
        answer = await self.ask(method, path, **more)
        assert answer.status_code in (200, 201, 202, 204), answer.text
        return answer.json() if answer.content else None

    async def start(self, name: str, **more: Any) -> str:
        started = await self.done("POST", "/api/v1/runs", json={"name": name, **more})
        run: str = started["run"]
        return run
