"""Functions that are declared with `@statement`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rota.store.query import Params, Query, statement


@statement("thing/list", int)
def things(name: str, ids: Sequence[int] = (), *, limit: int = 10) -> Params | None:
    """Return things."""
    return {"prefix": f"{name}%"} if name else None


def test_statement_arguments_and_computed_values_are_parameters() -> None:
    assert things("a", [1], limit=3) == Query(
        "thing/list", {"name": "a", "ids": [1], "limit": 3, "prefix": "a%"}, int
    )


def test_statement_omitted_arguments_have_their_defaults() -> None:
    assert things(ids=[1], name="").params == {"name": "", "ids": [1], "limit": 10}


def test_statement_sequences_are_sent_as_new_lists() -> None:
    given = [1, 2]

    assert things("", (1, 2)).params["ids"] == [1, 2]
    assert things("", given).params["ids"] is not given


def test_statement_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="things"):
        things("a", offset=3)  # type: ignore[call-arg]
