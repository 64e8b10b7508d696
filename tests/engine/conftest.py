"""Tasks and flows that several tests call."""

from __future__ import annotations

import pytest

from rota import Flow, Rota, Task


@pytest.fixture
def double(rota_app: Rota) -> Task[[int], int]:
    @rota_app.task
    async def double(n: int) -> int:
        return 2 * n

    return double


@pytest.fixture
def pair(rota_app: Rota) -> Flow:
    flow = rota_app.flow("pair")

    @flow.task
    async def one(n: int) -> int:
        return n + 1

    @flow.task
    async def two(one: int) -> int:
        return one * 10

    return flow
