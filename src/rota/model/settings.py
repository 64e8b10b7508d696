"""Settings of one instance: a frozen object that is validated on creation.

Each field can be set with an environment variable `ROTA_<NAME>`. Durations are in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rota.errors import SettingsError
from rota.model.retention import DEFAULT_RETENTION, Retention

Duration = float | int | timedelta

NO_DATABASE_MESSAGE = (
    "no database is set: set ROTA_DATABASE_URL (or DATABASE_URL, or PGHOST and friends) to a "
    "PostgreSQL URL such as postgresql://user:password@host/name, pass one as Rota(dsn), "
    'or use the embedded one on purpose with Rota("local")'
)


def to_seconds(value: Duration) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings of one instance. Durations are in seconds."""

    schema: str = "rota"
    connections: int = 10  # maximum for starts, queries and waits; a worker uses up to five more
    outage_timeout: float = 30.0  # how long a call retries while the database is unavailable
    statement_timeout: float = 30.0
    notify: bool = True  # off: no LISTEN and NOTIFY; workers find jobs by polling only
    pooler: str = "auto"  # yes, no or auto: connections pass a pooler in transaction mode
    poll_interval: float = 1.0  # pause between polls of an idle worker
    concurrency: int = 100
    max_processes: int = 0  # maximum for isolated tasks; 0: the number of CPU cores
    prefetch: int = 2000  # maximum of claimed jobs beyond the running ones, for short jobs
    batch: int = 1000  # maximum of jobs in one claim
    drain_timeout: float = 30.0  # time in which a stopping worker must finish
    drain_delay: float = 10.0  # time a web process still serves after it became unready
    web_worker: bool = True  # True: a web process also runs a worker; False: it only starts runs
    heartbeat_interval: float = 5.0  # interval of a worker's heartbeat
    dead_after: float = 20.0  # time without a heartbeat after which a worker is declared dead
    version: str = ""  # version of the deployed code, shown with each worker
    payload_limit: int = 256 * 1024  # maximum bytes of JSON of arguments, and of a result
    tracing: str = "auto"  # spans. auto: if a tracer provider is set; on: always; off: never
    retention: str = DEFAULT_RETENTION  # of finished runs, by outcome and queue
    webhook_hosts: str = ""  # hosts that webhooks may be sent to; empty: none
    webhook_secret: str = field(default="", repr=False)  # signs webhooks
    alerts: str = ""  # limits of alerts; a limit that is not given has its default
    alert_webhook: str = field(default="", repr=False)  # URLs that receive alerts
    alert_retention: float = 30 * 86400.0  # of closed alerts, from their end
    audit_retention: float = 365 * 86400.0
    autoscale_target: float = 60.0  # seconds in which a backlog should be worked off
    autoscale_min: int = 0  # minimum of desired workers of a queue
    autoscale_max: int = 100  # maximum of desired workers of a queue

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_choices()
        Retention.parse(self.retention)
        if self.webhook_hosts:
            from rota.model.webhook_hosts import WebhookHosts

            WebhookHosts.parse(self.webhook_hosts)
        if self.alerts:
            from rota.model.alert_rules import AlertRules

            AlertRules.parse(self.alerts)
        if self.alert_webhook:
            _check_urls(self.alert_webhook, self.webhook_hosts)

    def _check_numbers(self) -> None:
        self._check_lower_bounds()
        if self.payload_limit > 1024 * 1024:
            raise SettingsError(
                f"payload_limit is {self.payload_limit}, more than 1 MiB (1048576); keep big things "
                "elsewhere and pass a reference to them"
            )
        if self.dead_after < 3 * self.heartbeat_interval:
            raise SettingsError(
                f"dead_after is {self.dead_after:g} s, less than three heartbeats of "
                f"{self.heartbeat_interval:g} s: one late heartbeat could make a live worker count as "
                "dead; raise dead_after or lower heartbeat_interval"
            )
        if not 0 <= self.autoscale_min <= self.autoscale_max:
            raise SettingsError(
                f"autoscale_min is {self.autoscale_min} and autoscale_max {self.autoscale_max}: the first "
                "cannot be below 0, or above the second"
            )

    def _check_lower_bounds(self) -> None:
        for name in ("connections", "concurrency", "batch", "payload_limit"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        above_zero = (
            *("outage_timeout", "statement_timeout", "poll_interval", "heartbeat_interval"),
            "autoscale_target",
        )
        for name in above_zero:
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} must be above 0 seconds, not {getattr(self, name)}")
        for name in ("max_processes", "prefetch", "drain_timeout", "drain_delay"):
            if getattr(self, name) < 0:
                raise SettingsError(f"{name} cannot be negative, it is {getattr(self, name)}")
        for name in ("alert_retention", "audit_retention"):
            if not getattr(self, name) >= 3600:
                raise SettingsError(
                    f"{name} is {getattr(self, name):g} s, less than an hour; raise it"
                )

    def _check_choices(self) -> None:
        if self.pooler not in ("auto", "yes", "no"):
            raise SettingsError(f"pooler must be auto, yes or no, not {self.pooler!r}")
        if self.tracing not in ("auto", "on", "off"):
            raise SettingsError(f"tracing must be auto, on or off, not {self.tracing!r}")
        if self.tracing == "on" and find_spec("opentelemetry") is None:
            raise SettingsError(
                "tracing is on, and OpenTelemetry is not installed: pip install 'pgrota[otel]', or set "
                "ROTA_TRACING=off"
            )

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """Return settings from the environment. Values given by name take precedence."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for each in fields(cls):
            variable = f"ROTA_{each.name.upper()}"
            if given.get(each.name) is not None:
                value = given[each.name]
                values[each.name] = to_seconds(value) if isinstance(value, timedelta) else value
            elif variable in environment:
                values[each.name] = _parse(variable, environment[variable], type(each.default))
        unknown = set(given) - {each.name for each in fields(cls)}
        if unknown:
            raise SettingsError(
                f"there is no setting called {sorted(unknown)[0]!r}; "
                f"there are: {', '.join(each.name for each in fields(cls))}"
            )
        return cls(**values)


def _check_urls(urls: str, allowed: str) -> None:
    from rota.errors import WebhookRefused
    from rota.model.webhook_hosts import WebhookHosts

    for url in urls.split():
        try:
            WebhookHosts.parse(allowed).target_for(url)
        except WebhookRefused as error:
            raise SettingsError(f"alert_webhook: {error}") from None


def database_url(environment: Mapping[str, str] | None = None) -> str:
    """Return the DSN from the environment, the most specific variable first; raise SettingsError without
    one."""
    environment = os.environ if environment is None else environment
    for name in ("ROTA_DATABASE_URL", "DATABASE_URL"):
        if found := _read_url(name, environment):
            return found
    if any(environment.get(name) for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE")):
        return ""  # libpq reads them itself
    raise SettingsError(NO_DATABASE_MESSAGE)


def direct_url(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the URL that bypasses the pooler, from the environment; None if it is not set."""
    return _read_url("ROTA_DIRECT_URL", os.environ if environment is None else environment)


def _read_url(name: str, environment: Mapping[str, str]) -> str | None:
    if environment.get(name):
        return environment[name]
    if file := environment.get(f"{name}_FILE"):
        try:
            return Path(file).read_text("utf-8").strip()
        except OSError as error:
            raise SettingsError(
                f"{name}_FILE names {file}, which cannot be read: {error.strerror}"
            ) from None
    return None


_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True}
_BOOLEANS |= {"0": False, "false": False, "no": False, "off": False}


def _parse(variable: str, text: str, kind: type) -> Any:
    try:
        if kind is bool:
            return _BOOLEANS[text.strip().lower()]
        return kind(text.strip())
    except (KeyError, ValueError):
        expected = {bool: "on or off", int: "a whole number", float: "a number of seconds"}
        raise SettingsError(
            f"{variable} must be {expected.get(kind, 'text')}, not {text!r}"
        ) from None
