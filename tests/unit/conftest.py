"""An app and a flow without a database."""

import pytest

from rota import Flow, Rota


@pytest.fixture
def app() -> Rota:
    return Rota("postgresql://nowhere/nothing")


@pytest.fixture
def flow(app: Rota) -> Flow:
    return app.flow("etl")
