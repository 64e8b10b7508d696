"""Settings: one frozen object, from the environment or from arguments, with errors that name the remedy."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.errors import SettingsError
from rota.model.settings import Settings, database_url


def test_settings_empty_environment_gives_defaults() -> None:
    assert Settings.read({}) == Settings()


def test_settings_every_field_is_read_from_its_variable() -> None:
    others = {
        "schema": "other",
        "notify": "off",
        "pooler": "no",
        "retention": "7d",
        "dead_after": "21",
    }
    others |= {"alerts": "off", "alert_webhook": "https://7/", "alert_retention": "7200"}
    others |= {"audit_retention": "7200", "web_worker": "off", "tracing": "off"}
    environment = {
        f"ROTA_{each.name.upper()}": others.get(each.name, "7") for each in fields(Settings)
    }

    read = Settings.read(environment)

    changed = [each.name for each in fields(Settings) if getattr(read, each.name) != each.default]
    assert changed == [each.name for each in fields(Settings)]
    for each in fields(Settings):
        assert type(getattr(read, each.name)) is type(each.default), each.name


def test_settings_argument_overrides_variable() -> None:
    read = Settings.read(
        {"ROTA_CONCURRENCY": "7", "ROTA_BATCH": "8"}, concurrency=3, poll_interval=None
    )

    assert (read.concurrency, read.batch, read.poll_interval) == (3, 8, Settings().poll_interval)


def test_settings_argument_false_overrides_variable() -> None:
    assert Settings.read({"ROTA_NOTIFY": "on"}, notify=False).notify is False


def test_settings_duration_accepts_timedelta() -> None:
    assert Settings.read({}, drain_timeout=timedelta(minutes=2)).drain_timeout == 120.0


@pytest.mark.parametrize("word", ["1", "true", "YES", " on "])
def test_settings_boolean_accepts_several_words(word: str) -> None:
    assert Settings.read({"ROTA_NOTIFY": word}).notify is True


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("ROTA_CONCURRENCY", "many", "a whole number"),
        ("ROTA_CONCURRENCY", "1.5", "a whole number"),
        ("ROTA_POLL_INTERVAL", "often", "a number of seconds"),
        ("ROTA_NOTIFY", "perhaps", "on or off"),
        ("ROTA_NOTIFY", "", "on or off"),
    ],
)
def test_settings_unreadable_variable_is_named_in_error(
    variable: str, text: str, expected: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{variable} must be {expected}, not '{text}'$"):
        Settings.read({variable: text})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1, not 0"),
        ({"connections": -1}, "connections must be at least 1"),
        ({"poll_interval": 0}, "poll_interval must be above 0 seconds, not 0"),
        ({"outage_timeout": float("nan")}, "outage_timeout must be above 0"),
        ({"prefetch": -1}, "prefetch cannot be negative"),
        ({"drain_timeout": timedelta(seconds=-1)}, "drain_timeout cannot be negative"),
        ({"payload_limit": 2 * 1024 * 1024}, "more than 1 MiB"),
        ({"colour": "red"}, r"no setting called 'colour'; there are: schema, connections"),
    ],
)
def test_settings_invalid_value_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings.read({}, **given)


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().poll_interval = 3.0  # type: ignore[misc]


# The database


def test_database_url_prefers_the_most_specific_variable() -> None:
    environment = {"DATABASE_URL": "theirs", "ROTA_DATABASE_URL": "ours", "PGHOST": "h"}

    assert database_url(environment) == "ours"
    del environment["ROTA_DATABASE_URL"]
    assert database_url(environment) == "theirs"
    del environment["DATABASE_URL"]
    assert database_url(environment) == ""


def test_database_url_is_read_from_file(tmp_path: Path) -> None:
    secret = tmp_path / "dsn"
    secret.write_text("postgresql://somewhere\n")

    assert database_url({"ROTA_DATABASE_URL_FILE": str(secret)}) == "postgresql://somewhere"


def test_database_url_missing_raises_error_with_remedy() -> None:
    with pytest.raises(SettingsError, match=r'ROTA_DATABASE_URL.*Rota\("local"\)'):
        database_url({"ROTA_DATABASE_URL": ""})
