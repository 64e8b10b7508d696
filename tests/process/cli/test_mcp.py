"""`rota mcp` as a client starts it: a process that speaks through stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from support.terminal import APPS, Terminal


@asynccontextmanager
async def rota_mcp(dsn: str, *words: str) -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "rota", "mcp", *words],
        env={**os.environ, "ROTA_DATABASE_URL": dsn},
        cwd=APPS,
    )
    async with Client(stdio_client(command)) as client:
        yield client


async def test_mcp_operator_starts_lists_and_cancels_a_run(empty_dsn: str) -> None:
    async with rota_mcp(empty_dsn, "-a", "shop:app", "--role", "operator") as client:
        tools = {each.name for each in (await client.list_tools()).tools}
        order = {"name": "echo", "input": {"value": 1}, "delay": 3600}
        started = await client.call_tool("start_run", order)
        run = started.structured_content["run"]
        listed = (await client.call_tool("list_runs", {})).structured_content
        cancelled = await client.call_tool("cancel_run", {"run": run})

    assert {"start_run", "cancel_run", "list_runs"} <= tools
    assert [each["run"] for each in listed["runs"]] == [run]
    assert not cancelled.is_error
    audit = await asyncio.to_thread(Terminal(empty_dsn).run, "audit")
    assert "(mcp)" in audit.out


async def test_mcp_without_role_only_reads(empty_dsn: str) -> None:
    async with rota_mcp(empty_dsn) as client:
        tools = (await client.list_tools()).tools
        overview = await client.call_tool("overview", {})

    assert all(each.annotations and each.annotations.read_only_hint for each in tools)
    assert not overview.is_error


async def test_mcp_app_that_prints_does_not_disturb_the_protocol(empty_dsn: str) -> None:
    async with rota_mcp(empty_dsn, "-a", "prints:app") as client:
        overview = await client.call_tool("overview", {})

    assert not overview.is_error
    result = await asyncio.to_thread(Terminal(empty_dsn).run, "mcp", "-a", "prints:app")
    assert (result.code, result.out) == (0, "")
    assert "hello from the module" in result.err


def test_mcp_end_of_stdin_ends_the_command(empty_dsn: str) -> None:
    result = Terminal(empty_dsn).run("mcp")

    assert (result.code, result.out) == (0, "")


def test_mcp_unreachable_database_is_one_line(empty_dsn: str) -> None:
    result = Terminal("postgresql://127.0.0.1:1/rota?connect_timeout=1").run("mcp")

    assert (result.code, result.out) == (4, "")
    assert len(result.err.splitlines()) == 1
