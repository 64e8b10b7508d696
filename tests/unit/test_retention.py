"""Retention setting: its syntax, its values, and its error messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.errors import SettingsError
from rota.model.queue_settings import UNIT_SECONDS
from rota.model.retention import DEFAULT_RETENTION, FOREVER, OUTCOMES, Retention
from rota.model.settings import Settings

DAY = 86400.0

spans = some.one_of(
    some.just("forever"),
    some.builds(
        lambda n, unit: f"{n}{unit}", some.integers(0, 5000), some.sampled_from([*UNIT_SECONDS])
    ),
)
rules = some.builds(
    lambda everything, own: [
        *everything,
        *(f"{outcome}={span}" for outcome, span in own.items()),
    ],
    some.lists(spans, max_size=1),
    some.dictionaries(some.sampled_from(OUTCOMES), spans),
).filter(bool)
queues = some.from_regex(r"[A-Za-z_][\w.:/-]{0,20}", fullmatch=True)


def seconds(span: str) -> float:
    return FOREVER if span == "forever" else int(span[:-1]) * float(UNIT_SECONDS[span[-1]])


def max_age(retention: Retention, queue: str, outcome: str) -> float:
    """Return the seconds for which such a run is kept after its end."""
    return retention.queues.get(queue, retention.default)[outcome]


def test_retention_default_is_7_days_if_succeeded_else_30() -> None:
    keep = Retention.parse(DEFAULT_RETENTION)

    assert max_age(keep, "any", "succeeded") == 7 * DAY
    assert {max_age(keep, "any", each) for each in OUTCOMES if each != "succeeded"} == {30 * DAY}
    assert Settings().retention == DEFAULT_RETENTION


def test_retention_times_per_default_outcome_and_queue() -> None:
    keep = Retention.parse("7d failed=30d; images: 1d failed=7d; audit: forever")

    assert max_age(keep, "any", "expired") == 7 * DAY
    assert max_age(keep, "any", "failed") == 30 * DAY
    assert max_age(keep, "images", "cancelled") == DAY
    assert max_age(keep, "images", "failed") == 7 * DAY
    assert max_age(keep, "audit", "failed") == FOREVER


def test_retention_queue_falls_back_to_general_part_then_default() -> None:
    keep = Retention.parse("images: failed=1h; failed=2h expired=3h")

    assert max_age(keep, "images", "failed") == 3600
    assert max_age(keep, "images", "expired") == 3 * 3600
    assert max_age(keep, "images", "succeeded") == 7 * DAY
    assert max_age(keep, "any", "failed") == 2 * 3600


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("3d", 3 * DAY),
        ("2w", 14 * DAY),
        ("0s", 0),
        ("36500d", 36500 * DAY),
    ],
)
def test_retention_units_are_converted_to_seconds(span: str, expected: float) -> None:
    assert Retention.parse(span).min_age == expected


def test_retention_queue_name_with_colon_is_accepted() -> None:
    assert max_age(Retention.parse("a:b/c.d-1: 1d"), "a:b/c.d-1", "failed") == DAY


def test_retention_min_age_is_shortest_of_all_parts() -> None:
    assert Retention.parse("7d; images: 1d failed=6h; audit: forever").min_age == 6 * 3600
    assert Retention.parse("forever").min_age == FOREVER


def test_retention_spaces_and_empty_parts_are_ignored() -> None:
    assert Retention.parse(" ;7d   failed=1d;\n images:  1d ; ") == Retention.parse(
        "7d failed=1d;images: 1d"
    )


@given(rules, some.dictionaries(queues, rules, max_size=3))
def test_retention_any_valid_text_gives_the_stated_ages(
    default: list[str], named: dict[str, list[str]]
) -> None:
    parts = [*(f"{queue}: {' '.join(rule)}" for queue, rule in named.items()), " ".join(default)]

    keep = Retention.parse("; ".join(parts))

    for queue, rule in [("nobody's own ", default), *named.items()]:
        for word in rule:
            outcome, equals, span = word.rpartition("=")
            if equals:
                assert max_age(keep, queue, outcome) == seconds(span)
            else:
                said = {each.partition("=")[0] for each in rule if "=" in each}
                for other in set(OUTCOMES) - said:
                    assert max_age(keep, queue, other) == seconds(span)


@given(rules, some.dictionaries(queues, rules, max_size=3))
def test_retention_str_round_trips(default: list[str], named: dict[str, list[str]]) -> None:
    parts = [" ".join(default), *(f"{queue}: {' '.join(rule)}" for queue, rule in named.items())]
    keep = Retention.parse("; ".join(parts))

    assert Retention.parse(str(keep)) == keep


@given(some.text("0123456789smhdw=;: \nforeverailducp", max_size=40))
def test_retention_any_text_is_parsed_or_refused_with_example(text: str) -> None:
    told = ""
    try:
        assert Retention.parse(text).min_age >= 0
    except SettingsError as error:
        told = str(error)

    assert not told or told.endswith("'30d succeeded=7d; images: 1d failed=7d; audit: forever'")


MISTAKES = {
    "": "it is empty",
    " ; ": "it is empty",
    "7": "'7' has no unit (7d would be days)",
    "failed=7": "'failed=7' has no unit (7d would be days)",
    "7y": "'7y' has an unknown unit (there are w, d, h, m, s)",
    "1.5d": "'1.5d' is not a time (a whole number with a unit, or forever)",
    "-1d": "'-1d' is not a time",
    "٧d": "'٧d' is not a time",
    "always": "'always' is not a time",
    "failed=": "'failed=' is not a time",
    "300y 2d": "'300y' has an unknown unit",
    "36501d": "'36501d' is more than a hundred years (write forever)",
    "9999999999999999999999d": "is not a time",
    "fail=7d": "'fail' in 'fail=7d' is not an outcome (there are succeeded, failed, cancelled,",
    "=7d": "'' in '=7d' is not an outcome",
    "7d 8d": "'8d' sets the default a second time in '7d 8d'",
    "failed=1d failed=2d": "'failed=2d' sets failed a second time",
    "1d; 2d": "'2d' is a second part about every queue",
    "a: 1d; a: failed=2d": "queue 'a' has two parts",
    "a:": "queue 'a' has no duration",
    ": 1d": "'' cannot be a queue's name",
    "7: 1d": "'7' cannot be a queue's name",
    "images:1d": "'images:1d' wants a space after the queue's name, images: 1d",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_retention_error_names_the_wrong_part(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(retention=text)

    assert MISTAKES[text] in str(caught.value)


def test_retention_non_text_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"it is 7\.0, not text"):
        Settings(retention=7.0)  # type: ignore[arg-type]
