"""How one instance behaves: one frozen object, checked once.

Every field can be set by a variable `ROTA_<NAME>`. Durations are seconds.
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
from rota.model.retention import DEFAULT_RETENTION as DEFAULT_KEEP
from rota.model.retention import Retention

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
    """How one instance behaves. Durations are seconds."""

    schema: str = "rota"
    connections: int = 10  # at most, for starting, asking and waiting; a worker has up to five more
    outage_timeout: float = 30.0  # how long a call goes on trying while the database is away
    statement_timeout: float = 30.0
    notify: bool = True  # off: nothing is sent or listened for, polling alone finds work
    pooler: str = "auto"  # whether there is one in between, in transaction mode: yes, no or auto
    poll_interval: float = 1.0  # how often an idle worker looks without being told
    concurrency: int = 100
    max_processes: int = 0  # processes for isolated tasks, at most; 0: as many as there are cores
    prefetch: int = 2000  # at most so many held beyond what runs, while jobs are short
    batch: int = 1000  # at most so many in one claim
    drain_timeout: float = 30.0  # how long a worker that stops may take over it, all in all
    drain_delay: float = (
        10.0  # how long a web process that leaves goes on serving, unready, before that
    )
    web_worker: bool = True  # whether a web process works, too, or only starts runs
    heartbeat_interval: float = 5.0  # how often a worker says it is there
    dead_after: float = 20.0  # silent for so long, it is taken to be dead
    version: str = ""  # what you call the code that is deployed, shown with each worker
    payload_limit: int = 256 * 1024  # bytes of JSON, arguments and results alike
    tracing: str = "auto"  # spans: where a tracer provider is set, on: also without, off: never
    retention: str = DEFAULT_KEEP  # how long finished runs are kept, by outcome and queue
    webhook_hosts: str = ""  # where webhooks may go; nowhere, unless it is said
    webhook_secret: str = field(default="", repr=False)  # what they are signed with
    alerts: str = ""  # what is worth an alert, and from where on; what is not said is as usual
    alert_webhook: str = field(default="", repr=False)  # URLs that are told of alerts
    alert_retention: float = 30 * 86400.0  # for how long after they are over
    audit_retention: float = 365 * 86400.0
    autoscale_target: float = 60.0  # in how many seconds a backlog is to be worked off
    autoscale_min: int = 0  # workers wanted for a queue at least
    autoscale_max: int = 100  # … and at most

    def __post_init__(self) -> None:
        for name in ("connections", "concurrency", "batch", "payload_limit"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("outage_timeout", "statement_timeout", "poll_interval", "heartbeat_interval"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} must be above 0 seconds, not {getattr(self, name)}")
        for name in ("max_processes", "prefetch", "drain_timeout", "drain_delay"):
            if getattr(self, name) < 0:
                raise SettingsError(f"{name} cannot be negative, it is {getattr(self, name)}")
        if self.payload_limit > 1024 * 1024:
            raise SettingsError(
                f"payload_limit is {self.payload_limit}, more than 1 MiB (1048576); keep big things "
                "elsewhere and pass a reference to them"
            )
        if self.dead_after < 3 * self.heartbeat_interval:
            raise SettingsError(
                f"dead_after is {self.dead_after:g} s, less than three heartbeats of "
                f"{self.heartbeat_interval:g} s: one late "
                "beat, and a worker would be taken for dead; raise it, or lower heartbeat_interval"
            )
        if self.pooler not in ("auto", "yes", "no"):
            raise SettingsError(f"pooler must be auto, yes or no, not {self.pooler!r}")
        if self.tracing not in ("auto", "on", "off"):
            raise SettingsError(f"tracing must be auto, on or off, not {self.tracing!r}")
        if self.tracing == "on" and find_spec("opentelemetry") is None:
            raise SettingsError(
                "tracing is on, and OpenTelemetry is not installed: pip install 'rota[otel]', or set "
                "ROTA_TRACING=off"
            )
        if not self.autoscale_target > 0:
            raise SettingsError(
                f"autoscale_target must be above 0 seconds, not {self.autoscale_target}"
            )
        if not 0 <= self.autoscale_min <= self.autoscale_max:
            raise SettingsError(
                f"autoscale_min is {self.autoscale_min} and autoscale_max {self.autoscale_max}: the first "
                "cannot be below 0, or above the second"
            )
        Retention.parse(self.retention)
        if self.webhook_hosts:
            from rota.model.webhook_hosts import WebhookHosts

            WebhookHosts.parse(self.webhook_hosts)
        if self.alerts:
            from rota.model.alert_rules import AlertRules

            AlertRules.parse(self.alerts)
        if self.alert_webhook:
            _check_urls(self.alert_webhook, self.webhook_hosts)
        for name in ("alert_retention", "audit_retention"):
            if not getattr(self, name) >= 3600:
                raise SettingsError(
                    f"{name} is {getattr(self, name):g} s, less than an hour; raise it"
                )

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """Settings from the environment; what is given by name wins."""
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
    """The DSN the environment names, the most specific first; no name, no guess."""
    environment = os.environ if environment is None else environment
    for name in ("ROTA_DATABASE_URL", "DATABASE_URL"):
        if found := _read_url(name, environment):
            return found
    if any(environment.get(name) for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE")):
        return ""  # libpq reads them itself
    raise SettingsError(NO_DATABASE_MESSAGE)


def direct_url(environment: Mapping[str, str] | None = None) -> str | None:
    """The way past the pooler that the environment names, to the same database; None: there is none."""
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
