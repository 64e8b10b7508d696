"""Connection parameters: values of the DSN, and Rota's defaults where the DSN has none."""

from __future__ import annotations

import pytest

from rota.store import dsn as store_dsn

SEVERAL = "postgresql://u@one,two:5433/name"


@pytest.fixture(autouse=True)
def clear_dsn_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGCONNECT_TIMEOUT", "PGTARGETSESSIONATTRS"):
        monkeypatch.delenv(name, raising=False)
    store_dsn.connection_parameters.cache_clear()


def test_dsn_defaults_detect_dead_connection_in_15_seconds() -> None:
    found = store_dsn.connection_parameters("postgresql://u@one/name")

    probes = found["keepalives_idle"] + found["keepalives_count"] * found["keepalives_interval"]
    assert probes <= 15
    assert found["tcp_user_timeout"] <= 15_000
    assert found["connect_timeout"] == store_dsn.CONNECT_TIMEOUT_SECONDS


def test_dsn_parameters_override_defaults() -> None:
    found = store_dsn.connection_parameters(
        "host=one keepalives_idle=60 tcp_user_timeout=0 connect_timeout=7 application_name=mine"
    )

    assert found["keepalives_idle"] == "60"
    assert found["tcp_user_timeout"] == "0"
    assert found["connect_timeout"] == "7"
    assert found["application_name"] == "mine"


@pytest.mark.parametrize(
    "dsn", [SEVERAL, "host=one,two", "hostaddr=127.0.0.1,127.0.0.2", "postgresql:///x?host=/a,/b"]
)
def test_dsn_several_hosts_require_read_write_session(dsn: str) -> None:
    found = store_dsn.connection_parameters(dsn)

    assert found["target_session_attrs"] == "read-write"
    assert found["connect_timeout"] == store_dsn.HOST_CONNECT_TIMEOUT_SECONDS


def test_dsn_single_host_sets_no_session_attributes() -> None:
    assert "target_session_attrs" not in store_dsn.connection_parameters("postgresql://u@one/name")


def test_dsn_several_hosts_keep_explicit_session_attributes() -> None:
    found = store_dsn.connection_parameters(f"{SEVERAL}?target_session_attrs=any")

    assert found["target_session_attrs"] == "any"


def test_dsn_without_host_reads_libpq_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "one,two")
    assert store_dsn.connection_parameters("")["target_session_attrs"] == "read-write"

    store_dsn.connection_parameters.cache_clear()
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "primary")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "4")
    found = store_dsn.connection_parameters("")
    assert (found["target_session_attrs"], found["connect_timeout"]) == ("primary", "4")
