"""Direct connection past a pooler: its configuration, and the database that it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota import Rota
from rota.errors import SettingsError
from rota.model.settings import Settings, direct_url

POOLER, DIRECT = "postgresql://pooler/name", "postgresql://direct/name"


def test_direct_url_is_read_from_environment_or_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{DIRECT}\n")

    assert direct_url({}) is None
    assert direct_url({"ROTA_DIRECT_URL": DIRECT}) == DIRECT
    assert direct_url({"ROTA_DIRECT_URL_FILE": str(file)}) == DIRECT


def test_direct_url_argument_overrides_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_DIRECT_URL", DIRECT)

    assert Rota(POOLER).database.find() == (POOLER, DIRECT)
    assert Rota(POOLER, direct="host=other").database.find() == (POOLER, "host=other")


def test_direct_url_after_database_switch_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a test of an app would send heartbeats to the production database."""
    monkeypatch.setenv("ROTA_DATABASE_URL", POOLER)
    monkeypatch.setenv("ROTA_DIRECT_URL", DIRECT)
    app = Rota()
    assert app.database.find() == (POOLER, DIRECT)

    home = app.database.switch("postgresql://test/name")
    assert app.database.find() == ("postgresql://test/name", None)
    app.database.switch(home)
    assert app.database.find() == (POOLER, DIRECT)


def test_pooler_setting_unknown_value_is_refused() -> None:
    with pytest.raises(SettingsError, match="pooler must be auto, yes or no, not 'perhaps'"):
        Settings.read({"ROTA_POOLER": "perhaps"})
