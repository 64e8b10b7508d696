"""Hypothesis profile: fewer examples than the default, and no deadline on a busy machine."""

import pytest
from hypothesis import settings

from rota import Flow, Rota

settings.register_profile("rota", deadline=None, max_examples=50)
settings.load_profile("rota")


@pytest.fixture
def app() -> Rota:
    return Rota("postgresql://nowhere/nothing")


@pytest.fixture
def flow(app: Rota) -> Flow:
    return app.flow("etl")
