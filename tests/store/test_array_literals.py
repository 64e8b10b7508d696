"""PostgreSQL reads array literals as the values they were made from."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from psycopg import Connection

from rota.store.array_literals import int_array, microsecond_array, text_array

Text = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
# All examples share one connection on purpose: a value must leave no state behind.
relaxed = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def connection(store_dsn: str) -> Iterator[Connection[tuple[object, ...]]]:
    with psycopg.connect(store_dsn, autocommit=True) as opened:
        yield opened


@relaxed
@given(values=some.lists(some.integers(-(2**63), 2**63 - 1)))
def test_int_array_any_values_round_trip(
    connection: Connection[tuple[object, ...]], values: list[int]
) -> None:
    row = connection.execute("select %s::bigint[]", (int_array(values),)).fetchone()

    assert row == (values,)


@relaxed
@given(values=some.lists(some.none() | Text))
def test_text_array_any_values_round_trip(
    connection: Connection[tuple[object, ...]], values: list[str | None]
) -> None:
    row = connection.execute("select %s::text[]", (text_array(values),)).fetchone()

    assert row == (values,)


@pytest.mark.parametrize("word", ["NULL", "null", "", " ", "{}", ",", '"', "\\", '\\"', "\n\t\r"])
def test_text_array_literal_syntax_characters_round_trip(
    connection: Connection[tuple[object, ...]], word: str
) -> None:
    values = [word, None, word * 2]

    row = connection.execute("select %s::text[]", (text_array(values),)).fetchone()

    assert row == (values,)


@relaxed
@given(values=some.lists(some.none() | Text.map(json.dumps)))
def test_text_array_json_documents_round_trip(
    connection: Connection[tuple[object, ...]], values: list[str | None]
) -> None:
    found = connection.execute(
        "select document::text from unnest(%s::json[]) as given (document)", (text_array(values),)
    )

    assert [row[0] for row in found] == values


@relaxed
@given(values=some.lists(some.floats(0, 1e9)))
def test_microsecond_array_seconds_round_trip_to_the_microsecond(
    connection: Connection[tuple[object, ...]], values: list[float]
) -> None:
    found = connection.execute(
        "select micro::float8 / 1e6 from unnest(%s::bigint[]) as given (micro)",
        (microsecond_array(values),),
    )

    assert [row[0] for row in found] == pytest.approx(values, abs=2e-6)
